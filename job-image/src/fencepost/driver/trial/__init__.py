"""`fencepost trial`: new code on records that a pipeline has committed, without its fence, and without a sink."""
