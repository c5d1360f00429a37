"""How many runs may be started at the same time."""
