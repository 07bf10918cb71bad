"""Slurm behind one port: pyslurm adapter, state table, fake. Alone knows Slurm's client library."""
