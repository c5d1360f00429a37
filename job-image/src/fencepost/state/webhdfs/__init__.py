"""The checkpoint directory over HTTP, in the dialect of Hadoop's WebHDFS client, which ships with Spark."""
