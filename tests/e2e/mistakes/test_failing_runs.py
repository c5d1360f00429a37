"""Runs that fail: a batch that is too large for the driver is cut, and code that always fails stops using resources."""

from __future__ import annotations

import re

import pytest

from e2e.stream import Applied, Stream
from harness.kubernetes.kubectl import Kubectl
from harness.pipelines import code, events
from harness.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

ROWS = 4000
FITS = 2500
"""Records that the driver's memory is enough for."""
CODE = "failing-code"
MODULE = f"""
import os
import departures

def records(context):
    return sum(until - start for start, until in context.offsets.values())

def hungry(batch, context):
    if records(context) > {FITS}:
        kept = [b"x" * 2**20 for _ in range(2**14)]
    return departures.transform(batch, context)

def broken(batch, context):
    if records(context):
        os._exit(7)
    return departures.transform(batch, context)
"""
JOB = {"codeFrom": {"configMapName": CODE}}


@pytest.mark.long
def test_a_batch_too_large_for_the_driver_is_cut_and_code_that_always_fails_stalls(
    applied: Applied, kubectl: Kubectl
) -> None:
    """Injected: a transform that takes 16 GiB for a large batch, then one that ends the driver at each batch."""
    made = code()
    kubectl.apply({**made, "metadata": {"name": CODE}, "data": {**made["data"], "failing.py": MODULE}})
    stream = applied(
        "failing",
        suspend=True,
        job={**JOB, "entrypoint": "failing:hungry"},
        # A slow machine would shrink the batches by their duration, below what the memory is enough for.
        source={"kafka": {"maxRecordsPerBatch": ROWS, "minRecordsPerBatch": ROWS}},
        restart={"maxBackoff": "1s", "maxAttempts": 5},
    )
    try:
        stream.load.burst(ROWS)
        stream.spec = {**stream.spec, "suspend": False}
        stream.apply()
        the_batch_is_cut(stream, kubectl)
        the_budget_ends(stream)
    finally:
        stream.pipeline.delete()  # the tests that come after share the nodes


def the_batch_is_cut(stream: Stream, kubectl: Kubectl) -> None:
    failure = eventually("a run ran out of memory", lambda: stream.pipeline.status().get("failure"), seconds=240)
    assert (failure["reason"], failure["exitCode"]) == ("OutOfMemory", 137), failure
    assert "The driver's container ran out of memory" in failure["message"]
    assert "job.resources" in failure["remedy"]
    stream.kills += stream.pipeline.restarts() + 1
    stream.check_every_row()
    cut = re.search(r"the planned batch of (\d+) records ran out of memory and is cut to (\d+)", events(kubectl))
    assert cut, "the Event RunStarted says that the batch is cut"
    assert int(cut[2]) == int(cut[1]) // 2 <= FITS < int(cut[1])


def the_budget_ends(stream: Stream) -> None:
    stream.apply(job={**JOB, "entrypoint": "failing:broken"}, restart={"maxBackoff": "1s", "maxAttempts": 1})
    stream.pipeline.wait_ready()
    stream.load.burst(300)
    stalled = stream.pipeline.wait_condition("Stalled", "True", reason="RestartBudgetExhausted", seconds=240)
    assert "as many as restart.maxAttempts allows" in stalled["message"]
    assert "exit code 7" in stalled["message"]
    assert stream.pipeline.status()["failure"]["log"], "the last lines of the log are kept"
    epoch = stream.pipeline.epoch()
    stream.apply(
        job={**JOB, "entrypoint": "failing:broken"}, restart={"maxBackoff": "1s", "maxAttempts": 1, "nonce": "again"}
    )
    eventually("the nonce starts another run", lambda: stream.pipeline.epoch() > epoch, seconds=120)
    stream.pipeline.wait_condition("Stalled", "True", reason="RestartBudgetExhausted", seconds=240)

    stream.kills += 2
    stream.apply(job={**JOB, "entrypoint": "failing:hungry"})
    stream.check_every_row()
