"""The wheels of the three packages."""

from __future__ import annotations

import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Final

from release.command import output_of
from release.version import ROOT, ReleaseError

COMMAND: Final = "uv build --all-packages --wheel"
SOURCES: Final = {
    "fencepost": ROOT / "job-image/src",
    "fencepost_operator": ROOT / "operator/src",
    "fencepost_cli": ROOT / "cli/src",
}


def build(uv: Path, into: Path) -> list[Path]:
    """Build the wheel of each package. Raises ReleaseError."""
    output_of([uv, "build", "--quiet", "--all-packages", "--wheel", "--out-dir", into])
    return sorted(into.glob("*.whl"))


def verify(wheels: list[Path], version: str) -> None:
    """Compare what each wheel has with its sources, and its metadata with the version. Raises ReleaseError."""
    found = {wheel.name.split("-")[0]: wheel for wheel in wheels}
    if found.keys() != SOURCES.keys():
        raise ReleaseError(f"the wheels are of {', '.join(sorted(found))}, not of {', '.join(SOURCES)}")
    for name, wheel in found.items():
        with zipfile.ZipFile(wheel) as archive:
            names = set(archive.namelist())
            (metadata,) = (one for one in names if one.endswith(".dist-info/METADATA"))
            fields = Parser().parsestr(archive.read(metadata).decode())
        if (fields["Version"], fields["License-Expression"]) != (version, "Apache-2.0"):
            raise ReleaseError(f"{wheel.name} is {fields['Version']}, licensed {fields['License-Expression']}")
        source = SOURCES[name]
        files = {path.relative_to(source).as_posix() for path in (source / name).rglob("*") if path.is_file()}
        wanted = {path for path in files if "__pycache__" not in path}
        packed = {one for one in names if ".dist-info/" not in one}
        if missing := sorted(wanted - packed):
            raise ReleaseError(f"{wheel.name} lacks {missing[0]} and {len(missing) - 1} others")
        if more := sorted(packed - wanted):
            raise ReleaseError(f"{wheel.name} has {more[0]}, which {source} does not")
