"""A new project of a pipeline, from templates."""
