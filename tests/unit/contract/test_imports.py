"""What is imported in every Spark Python worker and by every author stays light."""

import subprocess
import sys

import pytest


def imported(*modules: str) -> set[str]:
    program = f"import {', '.join(modules)}, sys; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(ended.stdout.split())


def test_authors_import_the_face_without_spark_or_clients() -> None:
    found = imported("fencepost")
    assert {"pyspark", "cassandra", "confluent_kafka", "pyarrow", "pydantic"}.isdisjoint(found)


@pytest.mark.parametrize(
    "modules", [("fencepost.kafka.reader", "fencepost.sinks.cassandra.writer"), ("fencepost.contract",)]
)
def test_workers_do_not_import_pydantic(modules: tuple[str, ...]) -> None:
    assert "pydantic" not in imported(*modules)
