"""Helm 3 and Helm 4, and a chart as a user writes it with a pipeline in it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from testbed.environment import Environment


class HelmError(AssertionError):
    """Helm ended with an error; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Helm:
    """One version of Helm in one namespace."""

    command: tuple[str, ...]

    @classmethod
    def of(cls, environment: Environment, namespace: str, program: str = "helm") -> Self:
        """Return Helm for a namespace of the testbed's cluster."""
        path = environment.kubectl.parent / program
        return cls((str(path), f"--kubeconfig={environment.kubeconfig}", f"--namespace={namespace}"))

    def run(self, *arguments: str, seconds: float = 400) -> str:
        """Return what Helm prints. Raises HelmError."""
        done = subprocess.run([*self.command, *arguments], capture_output=True, text=True, check=False, timeout=seconds)
        if done.returncode != 0:
            raise HelmError(f"helm {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout


def write_chart(folder: Path, *manifests: Mapping[str, Any]) -> str:
    """Write a chart of these manifests, over what the folder has; return its path."""
    (folder / "templates").mkdir(parents=True, exist_ok=True)
    about = {"apiVersion": "v2", "name": "flights", "version": "0.1.0"}
    (folder / "Chart.yaml").write_text(yaml.safe_dump(about))
    (folder / "templates" / "all.yaml").write_text(yaml.safe_dump_all(manifests))
    return str(folder)
