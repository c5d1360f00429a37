"""Processes that this machine runs for a command."""
