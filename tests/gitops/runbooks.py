"""Following a runbook: its commands as they are printed, with a live pipeline in place of NAMESPACE and NAME."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from generators.decisions import RUNBOOKS
from harness.pipelines import Pipeline
from testbed.environment import Environment
from unit.docs.runbook_commands import commands, filled

_READS: Final = re.compile(r"kubectl (get|describe) |fencepost dead-letters list ")


def read(environment: Environment, alert: str, pipeline: Pipeline) -> None:
    """Run each command of the alert's runbook that only looks. Raises AssertionError when one fails."""
    for command in commands([RUNBOOKS / f"{alert}.md"]):
        if _READS.match(command):
            run(environment, command, pipeline)


def act(environment: Environment, alert: str, pipeline: Pipeline, holding: str) -> None:
    """Run the only command of the alert's runbook that holds this text."""
    (command,) = [one for one in commands([RUNBOOKS / f"{alert}.md"]) if holding in one]
    run(environment, command, pipeline)


def run(environment: Environment, command: str, pipeline: Pipeline) -> str:
    """Run a command in the shell of a reader, whose kubeconfig is the testbed's; return what it prints."""
    values = {
        "NAMESPACE": pipeline.kubectl.namespace,
        "NAME": pipeline.name,
        "EPOCH": str(pipeline.epoch()),
    }
    line = filled(command, values)
    if line.startswith("fencepost "):
        # The addresses of the spec are the cluster's; the testbed's host has its own.
        line += f" --kafka {environment.kafka_host}"
        if " retention " not in line:
            line += f" --cassandra {environment.cassandra_host}:{environment.cassandra_port}"
    path = os.pathsep.join((str(environment.kubectl.parent), str(Path(sys.executable).parent), os.environ["PATH"]))
    with TemporaryDirectory() as folder:  # some commands write files
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            env={**os.environ, "PATH": path, "KUBECONFIG": str(environment.kubeconfig)},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert ended.returncode == 0, f"{line}: {ended.stdout}{ended.stderr}"
    return ended.stdout
