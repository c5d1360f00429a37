"""Commands for what a pipeline has committed, and its records."""
