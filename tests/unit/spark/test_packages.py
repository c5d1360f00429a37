"""PySpark requires none of the packages that it imports when it runs a processor with state."""

import importlib


def test_the_packages_of_transform_with_state_are_installed() -> None:
    importlib.import_module("pyspark.sql.streaming.proto.StateMessage_pb2")
