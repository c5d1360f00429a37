"""Operators as processes, with the rights of the chart's own ServiceAccount."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.control_plane import ControlPlane
from harness.waiting import eventually
from testbed.home import Home
from testbed.images import REPOSITORY

HOME: Final = "fencepost-system"
RELEASE: Final = "fencepost"
_HELM: Final = Home.of_user().bin / "helm"
PREVIOUS_COMMIT: Final = "2394ba976c21f0137462f6cf7317ea9d67c6d63e"
"""The release before hashes had a version; FENCEPOST_PREVIOUS_RELEASE names another commit or tag."""

ALLOW_SHALLOW: Final = "FENCEPOST_ALLOW_SHALLOW"
"""The variable that lets a clone without that commit skip what needs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Where an operator's code and the Spark cluster's chart are."""

    sources: tuple[Path, ...]
    chart: Path


THIS: Final = Code(sources=(), chart=REPOSITORY / "charts" / "spark-cluster")


def previous_release(folder: Path) -> Code | None:
    """Take the code of the release before out of the history; None where that does not reach so far back."""
    commit = os.environ.get("FENCEPOST_PREVIOUS_RELEASE", PREVIOUS_COMMIT)
    command = ["git", "-C", str(REPOSITORY), "archive", commit, "operator", "job-image", "charts"]
    archive = subprocess.run(command, capture_output=True, check=False)
    if archive.returncode:
        return None
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    sources = (folder / "operator" / "src", folder / "job-image" / "src")
    return Code(sources=sources, chart=folder / "charts" / "spark-cluster")


@dataclass(frozen=True, slots=True)
class Replica:
    """One of several operators; its log says what it does."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def leads(self) -> bool:
        """Whether it has ever held the lease."""
        return "this replica holds the lease" in self.log.read_text()


@dataclass(frozen=True, slots=True)
class Installed:
    """The operator's chart in a cluster without nodes: its rights are there, its pods are not."""

    plane: ControlPlane
    folder: Path

    @classmethod
    def by_helm(cls, plane: ControlPlane, folder: Path) -> Installed:
        """Install the chart as a user does."""
        found = cls(plane, folder)
        found.helm("install", RELEASE, str(REPOSITORY / "charts" / "fencepost"), "--create-namespace", "--skip-crds")
        return found

    def helm(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run Helm as an administrator; the exit code is the caller's business."""
        command = [str(_HELM), *words, f"--namespace={HOME}", f"--kubeconfig={self.plane.kubeconfig}"]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)

    @property
    def variables(self) -> dict[str, str]:
        """The environment of the operator's processes."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("KUBE", "FENCEPOST_"))}
        return {
            **kept,
            "KUBECONFIG": str(self.plane.kubeconfig_of(RELEASE, HOME)),
            "FENCEPOST_NAMESPACE": HOME,
            "FENCEPOST_HELM": str(_HELM),
            "FENCEPOST_RESYNC_SECONDS": "3",
            "FENCEPOST_METRICS_PORT": str(_free_port()),
            "FENCEPOST_PROBES_PORT": str(_free_port()),
        }

    @contextmanager
    def killable(self, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run an operator with more settings, for a test that may kill it with SIGKILL."""
        with self._running(THIS, settings) as (process, _):
            yield process

    @contextmanager
    def replica(self, holder: str) -> Iterator[Replica]:
        """Run an operator that shares the release's Lease with others, for a test that may kill or freeze it."""
        shared = {"FENCEPOST_LEASE": RELEASE, "FENCEPOST_HOLDER": holder}
        with self._running(THIS, shared, until="waiting for the lease") as (process, log):
            yield Replica(process, log)

    @contextmanager
    def operator(self, code: Code = THIS) -> Iterator[Path]:
        """Run an operator while the block runs, and end it in order; yield its log."""
        with self._running(code, {}) as (process, path):
            yield path
            assert process.poll() is None, f"the operator ended: {path.read_text()[-3000:]}"

    @contextmanager
    def _running(
        self, code: Code, settings: Mapping[str, str], *, until: str = "watching pipelines"
    ) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        sources = ":".join(str(path) for path in code.sources)
        variables = {**self.variables, "PYTHONPATH": sources, "FENCEPOST_CHART": str(code.chart), **settings}
        path = self.folder / f"operator-{len(list(self.folder.glob('operator-*')))}.log"
        with path.open("w") as log:
            command = [sys.executable, "-m", "fencepost_operator"]
            process = subprocess.Popen(command, env=variables, stdout=log, stderr=subprocess.STDOUT)
            try:
                eventually(f"the operator is {until}", lambda: until in path.read_text(), seconds=90)
                yield process, path
            finally:
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGCONT)  # a test may have frozen it
                process.wait(timeout=60)

    def guard(self) -> subprocess.CompletedProcess[str]:
        """Run what the chart's hook runs before an uninstall, as its pod would."""
        command = [sys.executable, "-m", "fencepost_operator.uninstall"]
        return subprocess.run(command, env=self.variables, capture_output=True, text=True, check=False, timeout=60)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
