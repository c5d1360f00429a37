"""Seconds until something has happened: a first commit, a recovery, a page."""
