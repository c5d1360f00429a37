"""Avro with a schema registry, with real Spark, Kafka and Cassandra: evolution, bad records, and an outage."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fencepost.contract import ExitCode, Format, Reason, RecordFormat, RegistryEndpoint
from fencepost.fence.cassandra.dead_letters import DeadLetters
from harness.schema_registry import Schemas, handler
from harness.web_server import serving
from integration.driver.support import Pipeline
from present import present
from unit.formats.conftest import avro, framed

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Reading", "fields": [{"name": name, **how} for name, how in fields]}


OLD = record(("n", {"type": "int"}), ("town", {"type": "string"}))
NEW = record(
    ("n", {"type": "long"}),
    ("city", {"type": "string", "aliases": ["town"]}),
    ("x", {"type": "double", "default": 0.5}),
)
BROKEN = b"\0\0\0\0\1\xff"


@pytest.mark.long
def test_records_of_two_schemas_are_written_and_one_that_is_broken_is_set_aside(pipeline: Make) -> None:
    """Then a schema that the registry does not have is waited for."""
    schemas = Schemas()
    old, new = (schemas.register("readings", json.dumps(schema)) for schema in (OLD, NEW))
    with serving(handler(schemas)) as port:
        one = pipeline(
            schema_registry=RegistryEndpoint(url=f"http://127.0.0.1:{port}"),
            value=RecordFormat(format=Format.AVRO, subject="readings", version=2),
        )
        send(one, [avro(old, OLD, {"n": number, "town": "EWR"}) for number in range(20)])
        send(one, [BROKEN])
        send(one, [avro(new, NEW, {"n": number, "city": "JFK", "x": 1.0}) for number in range(20, 40)])
        config = replace(one.take_over(), entrypoint="decoded:transform", isolate=True, dead_letter_retention=3600.0)
        run = one.start(config)
        one.wait_committed(41)
        run.signal(signal.SIGTERM)
        assert run.wait() == ExitCode.STOPPED
        found = sorted((row.n, row.city, row.x) for row in one.rows())
        assert found == [(n, "EWR", 0.5) if n < 20 else (n, "JFK", 1.0) for n in range(40)]
        letters = DeadLetters(one.session, one.config.fence_keyspace, one.config.pipeline)
        (listed,) = letters.of_partition(one.topic, 0)
        letter = present(letters.read(listed))
        assert letter.value == BROKEN
        assert f"{one.topic}/0@20: the value cannot be decoded as avro" in (letter.error or "")

        later = {**NEW, "doc": "registered later"}
        send(one, [framed(new + 1, avro(0, NEW, {"n": 40, "city": "LGA", "x": 2.0})[5:])])
        waiting = replace(one.take_over(), entrypoint="decoded:transform", stall_timeout=30.0)
        run = one.start(waiting)
        assert run.wait() == ExitCode.DEPENDENCY_DOWN
        verdict = run.verdict()
        assert verdict.reason is Reason.SCHEMA_NOT_FOUND
        assert f"has no schema {new + 1}" in verdict.message
        assert one.committed_records() == 41
        assert schemas.register("readings", json.dumps(later)) == new + 1
        run = one.start(replace(one.take_over(), entrypoint="decoded:transform"))
        one.wait_committed(42)
        run.stop()
        assert len(one.rows()) == 41


def send(one: Pipeline, values: list[bytes]) -> None:
    one.kafka.send(one.topic, [{"value": value, "partition": 0} for value in values])
