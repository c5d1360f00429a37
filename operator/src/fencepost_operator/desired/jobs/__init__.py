"""The Jobs of a pipeline, a run's and a purge's, and the configuration that each is given."""
