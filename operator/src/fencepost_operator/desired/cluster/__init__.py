"""The Spark cluster of a pipeline: the values of its chart, and the files of SPARK_CONF_DIR."""
