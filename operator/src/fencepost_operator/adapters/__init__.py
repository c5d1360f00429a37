"""The only place that knows Helm, Kubernetes, Cassandra and Kafka clients; each translates its errors."""
