"""Prometheus, Alertmanager and receivers of pages."""
