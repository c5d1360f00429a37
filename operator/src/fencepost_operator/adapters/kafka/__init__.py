"""What the operator reads from the tenants' Kafka clusters: offsets, ages and settings of topics."""
