"""Kubernetes, by the user's kubeconfig."""
