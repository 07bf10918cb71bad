"""Quota arithmetic over the team tree. Pure: imports only the standard library."""
