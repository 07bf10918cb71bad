"""The unit of admission and its translation from Slurm jobs, pods and batch Jobs. Pure."""
