"""Facts and choices about one run: whether it lives, what it commits, how it stops, how it failed."""
