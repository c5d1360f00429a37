"""Flux and Argo CD themselves, and how they judge objects."""
