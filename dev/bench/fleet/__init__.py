"""What a fleet costs its operator: a real API server, Cassandra and Kafka, and stand-ins for nodes and drivers."""
