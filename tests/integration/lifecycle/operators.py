"""Operators as processes, with the rights of the chart's own ServiceAccount."""

from __future__ import annotations

import io
import os
import re
import shutil
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

from harness.kubernetes.control_plane import ControlPlane
from harness.waiting import eventually
from testbed.home import Home
from testbed.images.built_images import REPOSITORY

HOME: Final = "fencepost-system"
RELEASE: Final = "fencepost"
WATCHING: Final = "watching pipelines"
"""In the log of an operator that has started."""
CHART: Final = REPOSITORY / "charts" / "fencepost"
_HELM: Final = Home.of_user().bin / "helm"
PREVIOUS: Final = "FENCEPOST_PREVIOUS_RELEASE"
"""The variable that names the commit or tag that an upgrade starts from; the newest tag by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Where an operator's code and the Spark cluster's chart are."""

    sources: tuple[Path, ...]
    chart: Path


THIS: Final = Code(
    sources=(REPOSITORY / "operator" / "src", REPOSITORY / "job-image" / "src"),
    chart=REPOSITORY / "charts" / "spark-cluster",
)
"""This checkout's, whatever is installed in the environment: a second worktree shares that."""


def previous_release(folder: Path) -> Code:
    """Take the code of the release before out of the history: this code with another version, until one is tagged.

    Raises CalledProcessError where the history lacks the commit that FENCEPOST_PREVIOUS_RELEASE names.
    """
    chart = folder / "charts" / "spark-cluster"
    if commit := os.environ.get(PREVIOUS) or _newest_tag():
        files = _git("archive", commit, "operator", "job-image", "charts")
        with tarfile.open(fileobj=io.BytesIO(files)) as archive:
            archive.extractall(folder, filter="data")
        return Code(sources=(folder / "operator" / "src", folder / "job-image" / "src"), chart=chart)
    about = shutil.copytree(THIS.chart, chart) / "Chart.yaml"
    about.write_text(re.sub("(?m)^version: .*$", "version: 0.0.1", about.read_text()))
    return Code(sources=THIS.sources, chart=chart)


def _newest_tag() -> str:
    """Return the newest tag that this commit contains, '' before the first release."""
    tags = _git("tag", "--list", "v*", "--merged=HEAD", "--sort=-version:refname").decode().split()
    return tags[0] if tags else ""


def _git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(REPOSITORY), *words], capture_output=True, check=True).stdout


@dataclass(frozen=True, slots=True)
class Replica:
    """One of several operators; its log says what it does."""

    process: subprocess.Popen[bytes]
    log: Path
    metrics: str
    """Where it serves its metrics."""

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
        done = found.helm("install", RELEASE, str(CHART), "--create-namespace", "--take-ownership")
        assert not done.returncode, done.stderr
        return found

    def upgrade(self, *settings: str, chart: Path = CHART) -> None:
        """Upgrade the release to this code's chart or another one, as a user does."""
        done = self.helm("upgrade", RELEASE, str(chart), "--reuse-values", *settings)
        assert not done.returncode, done.stderr

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
    def replica(self, holder: str, *, shards: int = 1) -> Iterator[Replica]:
        """Run an operator that shares the release's Leases with others, for a test that may kill or freeze it."""
        port = str(_free_port())
        shared = {
            "FENCEPOST_LEASE": RELEASE,
            "FENCEPOST_HOLDER": holder,
            "FENCEPOST_SHARDS": str(shards),
            "FENCEPOST_METRICS_PORT": port,
        }
        with self._running(THIS, shared, until="waiting for the lease") as (process, log):
            yield Replica(process, log, f"http://127.0.0.1:{port}/metrics")

    @contextmanager
    def operator(self, code: Code = THIS, *, until: str = WATCHING) -> Iterator[Path]:
        """Run an operator while the block runs, and end it in order; yield its log once it has `until` in it."""
        with self._running(code, {}, until=until) as (process, path):
            yield path
            assert process.poll() is None, f"the operator ended: {path.read_text()[-3000:]}"

    @contextmanager
    def _running(
        self, code: Code, settings: Mapping[str, str], *, until: str = WATCHING
    ) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        sources = ":".join(str(path) for path in code.sources)
        variables = {**self.variables, "PYTHONPATH": sources, "FENCEPOST_CHART": str(code.chart), **settings}
        path = self.folder / f"operator-{len(list(self.folder.glob('operator-*')))}.log"
        with path.open("w") as log:
            command = [sys.executable, "-m", "fencepost_operator"]
            process = subprocess.Popen(command, env=variables, stdout=log, stderr=subprocess.STDOUT)
            try:
                eventually(f"the operator logs {until!r}", lambda: until in path.read_text(), seconds=90)
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
