"""Kubernetes: kubectl, the API server's objects, and nodes."""
