"""Spark: the session, the JVM behind it, and one batch as one job."""
