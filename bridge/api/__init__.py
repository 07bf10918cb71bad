"""The REST API over what the last cycle saw. Reads a Source, never a cluster."""
