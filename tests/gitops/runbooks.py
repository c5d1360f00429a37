"""Following an alert's runbook while the alert fires, with the pipeline that it is about."""

from __future__ import annotations

import re
from typing import Final

from e2e.reader import Reader
from generators.decisions import RUNBOOKS
from harness.pipelines import Pipeline
from testbed.environment import Environment
from unit.docs.runbook_commands import commands

_READS: Final = re.compile(r"kubectl (get|describe) |fencepost dead-letters list ")


def read(environment: Environment, alert: str, pipeline: Pipeline) -> None:
    """Run each command of the alert's runbook that only looks. Raises AssertionError when one fails."""
    reader = Reader.of(environment, pipeline)
    for command in commands([RUNBOOKS / f"{alert}.md"]):
        if _READS.match(command):
            reader.run(command)


def act(environment: Environment, alert: str, pipeline: Pipeline, holding: str) -> None:
    """Run the only command of the alert's runbook that holds this text."""
    (command,) = [one for one in commands([RUNBOOKS / f"{alert}.md"]) if holding in one]
    Reader.of(environment, pipeline).run(command)
