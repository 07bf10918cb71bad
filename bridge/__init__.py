"""The bridge: Slurm on Kubernetes, one platform, one quota ledger."""
