"""The driver: one run of one pipeline, from its start to its verdict."""
