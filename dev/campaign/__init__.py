"""Faults at random moments on the real cluster: one pipeline, its users, and a checker of its own at the end."""
