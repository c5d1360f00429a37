"""The version, and every place that has it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

PLACES: Final[dict[str, str]] = {
    "pyproject.toml": r'^version = "(.+)"$',
    "operator/pyproject.toml": r'^version = "(.+)"$',
    "job-image/pyproject.toml": r'^version = "(.+)"$',
    "cli/pyproject.toml": r'^version = "(.+)"$',
    "charts/fencepost/Chart.yaml": r"^(?:version|appVersion): (.+)$",
    "charts/spark-cluster/Chart.yaml": r"^version: (.+)$",
    "Dockerfile": r"org\.opencontainers\.image\.version=(\S+)",
    "job-image/Dockerfile": r"org\.opencontainers\.image\.version=(\S+)",
    "docker-bake.hcl": r'^variable "VERSION" \{ default = "(.+)" \}$',
    "README.md": r"(?:fencepost-job:|fencepost-operator:|--version )(\d\S*?)(?=[\s`]|$)",
    "docs/authors.md": r"fencepost-job:(\d\S*?)(?=[\s`]|$)",
}
"""A file to the pattern of each version in it."""
CHANGELOG: Final = ROOT / "CHANGELOG.md"


class ReleaseError(Exception):
    """Something of a release is wrong; the message says what, and what to do."""


def versions() -> dict[str, set[str]]:
    """Return what each place says."""
    return {
        place: set(re.findall(pattern, (ROOT / place).read_text(), re.MULTILINE)) for place, pattern in PLACES.items()
    }


def the_version() -> str:
    """Return the version. Raises ReleaseError where two places differ, or one has none."""
    found = versions()
    said = sorted(set().union(*found.values()))
    if silent := [place for place, here in found.items() if not here]:
        raise ReleaseError(f"{silent[0]} has no version; its pattern is in dev/release/version.py")
    if len(said) != 1:
        places = "; ".join(f"{place}: {', '.join(sorted(here))}" for place, here in found.items())
        raise ReleaseError(f"the places have the versions {', '.join(said)}: {places}")
    return said[0]


def notes(version: str) -> str:
    """Return the changelog's section of a version. Raises ReleaseError without one."""
    section = re.search(
        rf"^## \[{re.escape(version)}\].*?\n(.*?)(?=^## \[|\Z)", CHANGELOG.read_text(), re.MULTILINE | re.DOTALL
    )
    if section is None or not section[1].strip():
        raise ReleaseError(f"CHANGELOG.md has no section for {version}: add `## [{version}] - DATE` and what users get")
    return section[1].strip() + "\n"


def date(version: str) -> str | None:
    """Return the date of the version's section, None for one that is not dated."""
    heading = rf"^## \[{re.escape(version)}\] - (\d{{4}}-\d{{2}}-\d{{2}})$"
    found = re.search(heading, CHANGELOG.read_text(), re.MULTILINE)
    return found[1] if found else None
