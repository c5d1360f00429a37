"""Following an alert's runbook while the alert fires, with the pipeline that it is about."""

from __future__ import annotations

import re
from typing import Final

from e2e.reader import Printed, Reader
from generators.decisions import RUNBOOKS
from harness.monitoring.prometheus import Prometheus
from harness.pipelines import Pipeline
from testbed.environment import Environment
from unit.docs.runbook_commands import commands

_READS: Final = re.compile(r"kubectl (get|describe) |fencepost dead-letters list |promtool query ")


def read(environment: Environment, alert: str, pipeline: Pipeline, prometheus: Prometheus) -> list[Printed]:
    """Run each command of the alert's runbook that only looks; return what they printed.

    Raises AssertionError when one fails, or asks Prometheus for what it does not have.
    """
    reader = Reader.of(environment, pipeline, PROMETHEUS_URL=prometheus.url)
    found = [reader.run(command) for command in commands([RUNBOOKS / f"{alert}.md"]) if _READS.match(command)]
    empty = [one.command for one in found if one.command.startswith("promtool ") and not one.output.strip()]
    assert not empty, f"Prometheus has no answer: {empty}"
    return found


def act(environment: Environment, alert: str, pipeline: Pipeline, holding: str) -> None:
    """Run the only command of the alert's runbook that holds this text."""
    (command,) = [one for one in commands([RUNBOOKS / f"{alert}.md"]) if holding in one]
    Reader.of(environment, pipeline).run(command)
