"""Which spec is in effect, whether it is stable, and whether it runs."""
