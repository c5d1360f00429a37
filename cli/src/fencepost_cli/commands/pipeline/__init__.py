"""Commands for pipelines in a cluster."""
