"""The fences in PostgreSQL."""
