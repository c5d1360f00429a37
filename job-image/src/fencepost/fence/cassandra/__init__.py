"""The fence in Cassandra: its keyspace and tables, its sessions, and what is read back from rows."""
