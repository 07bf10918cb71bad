"""The same planner and the same ledger rules on a trace, with a virtual clock and no cluster.

It knows no Kubernetes, no Slurm and no database: demand and nodes come from files.
"""
