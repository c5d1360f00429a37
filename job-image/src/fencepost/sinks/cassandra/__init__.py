"""The Cassandra sink: its driver half, its half in Python workers, and the index by which a purge finds rows."""
