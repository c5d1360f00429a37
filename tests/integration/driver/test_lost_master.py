"""A Spark master that is killed under a driver: what continues without it, and what a driver says that cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench.driver.cluster import MASTER, SECRET, spark_cluster
from fencepost.contract import DriverConfig, ExitCode, Reason, Variable
from harness.pipelines import SHORT_LIVED
from integration.driver.support import Pipeline, Run
from testbed.environment import Environment

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]


def test_a_driver_without_a_master_works_until_it_needs_an_executor_and_says_what_is_missing(
    environment: Environment, pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    """The master ends by SIGKILL, then the worker, then another run starts."""
    one = pipeline()
    one.kafka.produce(one.topic, 1000)
    with spark_cluster(environment, tmp_path, cores=1) as containers:
        run = start(one)
        one.wait_committed(1000)
        containers.kill("master")
        one.kafka.produce(one.topic, 1000, start=1000)
        one.wait_committed(2000)
        assert run.process.poll() is None
        containers.kill("worker")
        one.kafka.produce(one.topic, 1000, start=2000)
        assert run.wait() == ExitCode.NO_EXECUTORS, run.log.read_text()[-4000:]
        verdict = run.verdict()
        assert verdict.reason is Reason.NO_EXECUTORS
        assert "no executor for" in verdict.message
        run = start(one)
        assert run.wait() == ExitCode.DEPENDENCY_DOWN, run.log.read_text()[-4000:]
        verdict = run.verdict()
        assert verdict.reason is Reason.SPARK_UNREACHABLE
        assert MASTER in verdict.message
    assert one.committed_records() == 2000
    assert sorted(row.n for row in one.rows() if row.n < 2000) == list(range(2000))


def start(pipeline: Pipeline) -> Run:
    """Start a driver of the cluster under a new epoch."""
    config: DriverConfig = replace(
        pipeline.take_over(),
        spark_master=MASTER,
        spark_conf={**SHORT_LIVED, "spark.executor.memory": "512m"},
        stall_timeout=30.0,
    )
    return pipeline.start(config, **{Variable.POD_IP: "127.0.0.1", Variable.SPARK_AUTH_SECRET: SECRET})
