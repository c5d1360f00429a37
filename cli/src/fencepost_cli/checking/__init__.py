"""What is wrong with a pipeline before it runs: its manifest, its code, its image, what it needs in the cluster."""
