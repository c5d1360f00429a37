"""Sizes of the project's images, as the engine keeps them: unpacked, all layers."""

from __future__ import annotations

import subprocess

from bench.samples import Result, Sample
from flights.console import Console
from testbed.environment import load


def measure(console: Console) -> Result:  # noqa: ARG001 - every program is called alike
    """Ask the engine."""
    there = load()
    return Result(
        "images",
        [Sample(image, "MB", [size(str(there.docker), image)]) for image in (there.job_image, there.operator_image)],
    )


def size(docker: str, image: str) -> float:
    """An image's size in MB (10^6 bytes)."""
    words = [docker, "image", "inspect", "--format={{.Size}}", image]
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout) / 1e6
