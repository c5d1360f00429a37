"""promtool, and the chart's rules in the form that its tests compare."""

import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from testbed.home import Home
from unit.charts.rendering import HelmError

PROMTOOLS: Final = ("promtool", "promtool-3")
"""Debian's, and a newer one that `make test-gitops` builds: the versions of Prometheus differ in their functions."""


def promtool(name: str, *words: str, folder: Path) -> str:
    """Run promtool and return what it prints."""
    program = Home.of_user().bin / name
    if not program.exists():
        if name != PROMTOOLS[0]:
            pytest.skip(f"{name} is not there: run `make test-gitops`")
        raise HelmError(f"{program} is not there: run `make tools`")
    ended = subprocess.run([program, *words], capture_output=True, text=True, check=False, cwd=folder, timeout=600)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def without_annotations(groups: list[dict[str, Any]]) -> dict[str, Any]:
    """The rules alone: promtool compares annotations as well, and these are prose."""
    bare = [
        {**group, "rules": [{k: v for k, v in rule.items() if k != "annotations"} for rule in group["rules"]]}
        for group in groups
    ]
    return {"groups": bare}
