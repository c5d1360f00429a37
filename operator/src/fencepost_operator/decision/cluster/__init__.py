"""Facts and choices about the Spark cluster of a pipeline."""
