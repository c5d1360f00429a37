"""`fencepost console`: pages about pipelines, for one user of one machine."""
