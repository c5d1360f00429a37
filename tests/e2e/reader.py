"""A reader of the runbooks: runs their commands as they are printed, in the shell of an engineer on call."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from harness.pipelines import Pipeline
from testbed.environment import Environment
from unit.docs.runbook_commands import filled

_PLACEHOLDER: Final = re.compile(r"(?<![$\w])[A-Z]{2,}(?:[_-][A-Z]+)*(?!\w)")
_KUBECTL_CHANGES: Final = re.compile(r"(kubectl (?:annotate|apply|delete|patch|scale) .+?)(?= && | \| |$)")
_FOLLOWS: Final = re.compile(r"kubectl logs .* -f$")
_WITHOUT_THE_STORE: Final = ("fencepost failover ", "fencepost retention ")
_ASKS_KAFKA: Final = re.compile(r"fencepost (offsets|retention|fence show|dead-letters (?:retry|skip)) ")
FOLLOWED: Final = 10
"""Seconds that a log is followed."""


@dataclass(frozen=True, slots=True)
class Printed:
    """What a command printed."""

    command: str
    output: str
    warnings: str
    """Of stderr."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A user with the testbed's kubeconfig; `values` stand in for the words in capitals."""

    environment: Environment
    values: Mapping[str, str]

    @classmethod
    def of(cls, environment: Environment, pipeline: Pipeline, **values: str) -> Reader:
        """Return the reader who looks at this pipeline."""
        found = {"NAMESPACE": pipeline.kubectl.namespace, "NAME": pipeline.name, "EPOCH": str(pipeline.epoch())}
        return cls(environment, {**found, **values})

    def run(self, command: str) -> Printed:
        """Run a command; a log is followed for some seconds. Raises AssertionError when it fails."""
        line = self._line(command)
        path = os.pathsep.join(
            (str(self.environment.kubectl.parent), str(Path(sys.executable).parent), os.environ["PATH"])
        )
        variables = {"USER": "kim", **os.environ, "PATH": path, "KUBECONFIG": str(self.environment.kubeconfig)}
        follows = _FOLLOWS.search(command) is not None
        with TemporaryDirectory() as folder:  # some commands write files
            ended = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", f"timeout {FOLLOWED} {line}" if follows else line],
                env=variables,
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
        stopped = follows and ended.returncode == 124
        assert stopped or ended.returncode == 0, f"{line}: {ended.returncode}: {ended.stdout}{ended.stderr}"
        assert "error" not in ended.stderr.lower(), f"{line}: {ended.stderr}"
        return Printed(command, ended.stdout, ended.stderr)

    def try_out(self, command: str) -> Printed:
        """Run a command so that it changes nothing: what would is sent to the API server as a dry run."""
        command = _KUBECTL_CHANGES.sub(r"\1 --dry-run=server", command)
        if command.startswith("fencepost retention extend"):
            command += " --dry-run"
        return self.run(command)

    def _line(self, command: str) -> str:
        line = filled(command, dict(self.values))
        unknown = _PLACEHOLDER.findall(re.sub(r"'[^']*'|\"[^\"]*\"", "", line))
        assert not unknown, f"{unknown} stand for nothing that the test knows: {command}"
        if line.startswith("fencepost "):
            # The addresses of the spec are the cluster's; the testbed's host has its own.
            if _ASKS_KAFKA.match(line):
                line += f" --kafka {self.environment.kafka_host}"
            if not line.startswith(_WITHOUT_THE_STORE):
                line += f" --cassandra {self.environment.cassandra_host}:{self.environment.cassandra_port}"
        return line
