"""The way to Kubernetes, Cassandra and Kafka from this machine: only here are their clients known."""
