"""Operators as processes, with the rights of the chart's own ServiceAccount."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
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
THIS: Final = ("-m", "fencepost_operator")
PREVIOUS: Final = ("-m", "integration.lifecycle.previous_operator")
_HELM: Final = Home.of_user().bin / "helm"
PREVIOUS_RELEASE: Final = "FENCEPOST_PREVIOUS_RELEASE"
"""Names a folder with an older release (`git archive TAG operator job-image charts`) to take in place of PREVIOUS."""


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
            "FENCEPOST_CHART": str(REPOSITORY / "charts" / "spark-cluster"),
            "FENCEPOST_HELM": str(_HELM),
            "FENCEPOST_RESYNC_SECONDS": "3",
            "FENCEPOST_METRICS_PORT": str(_free_port()),
            "PYTHONPATH": str(REPOSITORY / "tests"),
        }

    @contextmanager
    def operator(self, program: Sequence[str] = THIS) -> Iterator[Path]:
        """Run an operator while the block runs, and end it in order; yield its log."""
        variables, older = self.variables, os.environ.get(PREVIOUS_RELEASE, "")
        if program == PREVIOUS and older:
            program = THIS
            sources = f"{older}/operator/src:{older}/job-image/src"
            variables |= {"PYTHONPATH": sources, "FENCEPOST_CHART": f"{older}/charts/spark-cluster"}
        path = self.folder / f"operator-{len(list(self.folder.glob('operator-*')))}.log"
        with path.open("w") as log:
            process = subprocess.Popen([sys.executable, *program], env=variables, stdout=log, stderr=subprocess.STDOUT)
            try:
                eventually("the operator watches", lambda: "watching pipelines" in path.read_text(), seconds=90)
                yield path
                assert process.poll() is None, f"the operator ended: {path.read_text()[-3000:]}"
            finally:
                process.send_signal(signal.SIGTERM)
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
