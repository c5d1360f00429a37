"""One record that does not fit into memory: a real driver measures it, and the operator stalls with what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from fencepost.contract import ExitCode, Reason
from fencepost_operator.api import State
from integration.driver.support import Pipeline
from unit.operator.decision.rules.test_restart_budget import out_of_memory, waiting
from unit.operator.scenes import NOW

pytestmark = pytest.mark.integration

KEY = b"k" * 10
VALUE = b'{"n": 1, "x": 0.5, "city": "' + b"x" * 200_000 + b'"}'


def test_a_record_that_does_not_fit_stalls_with_its_size_as_the_driver_measured_it(
    pipeline: Callable[..., Pipeline],
) -> None:
    one = pipeline(max_records_per_batch=1)
    producer = Producer({"bootstrap.servers": one.kafka.servers})
    producer.produce(one.topic, key=KEY, value=VALUE, partition=2, headers=[("from", b"a test")])
    assert producer.flush(60) == 0
    run = one.start(replace(one.take_over(), entrypoint="parse:greedy"))
    assert run.wait() == ExitCode.FAILED
    verdict = run.verdict()
    assert verdict.reason is Reason.OUT_OF_MEMORY
    size = len(KEY) + len(VALUE) + len("from") + len(b"a test")
    measured = f"the batch is one record of {size} bytes, {one.topic}/2@0: a Python worker ran out of memory"
    assert verdict.message.startswith(measured), verdict.message
    once = out_of_memory(None, planned=1, verdict=verdict)
    twice = out_of_memory(replace(once, epoch=1, next_attempt_at=NOW), planned=1, verdict=verdict)
    stalled = waiting(replace(twice, next_attempt_at=NOW)).decide()
    assert (stalled.reason, stalled.status.state) == (Reason.OUT_OF_MEMORY, State.STALLED)
    assert measured in stalled.status.message
    assert "Raise spec.cluster.worker.memory" in stalled.status.message
