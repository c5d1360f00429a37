"""What Kafka's log means for a pipeline: lag, losses, retention, snapshots of offsets."""
