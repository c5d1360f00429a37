"""Commands for new code, before it runs in a cluster."""
