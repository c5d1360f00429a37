"""Kafka and Cassandra in the cluster, and who may log in to them."""
