"""sbridge: the command line. Talks to the API only."""
