"""Fence rows in the tenants' Cassandra clusters, on connections that a server cannot misuse."""
