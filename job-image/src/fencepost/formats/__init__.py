"""Keys and values of records, decoded by the schemas of a registry into typed columns.

A record names the schema that it was written with by its id; the pipeline names the one schema that it reads with. The
decoding runs in the Python workers, in Arrow batches: the records of one batch may have several writers' schemas, and
an error names the record. Neither Spark nor Kafka is imported.
"""
