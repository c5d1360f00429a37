"""The only place that knows kopf."""
