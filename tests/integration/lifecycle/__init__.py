"""Operators as processes on an API server without nodes, which ends with this folder's tests."""
