"""What replicas of the operator, and operators of other clusters, share out among them."""
