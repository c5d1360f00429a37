"""Images: base images, those of this repository, and the one of the nodes."""
