"""Images, by the container engine of this machine."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

from fencepost_cli.errors import CliError

ENGINES: Final = ("docker", "podman", "nerdctl")
SECONDS: Final = 300.0
"""For one process in a container; Spark's start takes some seconds of it."""


def inspect_image(image: str) -> Mapping[str, Any]:
    """Return what the inspection script finds in an image, and under `config` its configuration. Raises CliError."""
    script = (files("fencepost_cli.checking") / "inspection.py").read_text()
    ended = run_in_image(image, ["python3", "-I", "-", "/"], script)
    described = _run([_engine(), "image", "inspect", image])
    try:
        return {**json.loads(ended.stdout), "config": json.loads(described.stdout)[0]["Config"]}
    except (ValueError, LookupError, TypeError) as error:
        last = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise CliError(
            f"{image} cannot be inspected: its python3 ended with {ended.returncode}: {last}",
            remedy="build it FROM fencepost-job; see docs/authors.md",
        ) from error


def run_in_image(image: str, command: Sequence[str], text: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a new container without network, with `text` on its standard input. Raises CliError."""
    # Java looks up the name of its host, which has no address without a network.
    options = ["--rm", "--interactive", "--network", "none", "--hostname", "localhost", "--entrypoint", command[0]]
    return _run([_engine(), "run", *options, image, *command[1:]], text)


def _run(command: Sequence[str], text: str | None = None) -> subprocess.CompletedProcess[str]:
    try:
        ended = subprocess.run(command, input=text, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CliError(f"{command[0]} did not end: {error}", remedy="see whether the container engine runs") from error
    if ended.returncode == 125:  # noqa: PLR2004 - the engine's own failure, in each of them
        raise CliError(
            f"{command[0]}: {(ended.stderr.strip().splitlines() or [''])[-1]}",
            remedy="pull or build the image, and see whether the container engine runs",
        )
    return ended


def _engine() -> str:
    for name in ENGINES:
        if found := shutil.which(name):
            return found
    raise CliError(f"no container engine on the PATH: {', '.join(ENGINES)}", remedy="install one of them")
