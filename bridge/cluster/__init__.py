"""What a SlurmCluster and a NodeSet turn into: manifests and slurm.conf. Pure rendering."""
