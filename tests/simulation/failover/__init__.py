"""Two Kubernetes clusters with operators of their own, and one fence: regions that are lost, cut off, and come back."""
