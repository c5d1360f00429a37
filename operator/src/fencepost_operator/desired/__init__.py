"""Builders of desired state: names, labels, Helm values, Job; pure functions of plain values."""
