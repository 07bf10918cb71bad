"""Nodes and workers to plan: placement, scaling and drain rules. Pure."""
