"""A real cluster, Kafka and Cassandra from nothing: `python -m testbed up`.

Two worlds, one result. Where a container registry answers, base images and the node image are pulled; where none
does, they are made from Debian packages and Go modules under the same names, so that nothing further on knows the
difference.
"""
