"""Spark clusters as Helm releases: the command, what it may apply, and what it applied."""
