"""`python -m release`: what the workflow of a release and `make release-dry-run` call."""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from release import chart, images, provenance, sbom
from release.command import output_of
from release.dry_run import INTO, DryRun
from release.version import ReleaseError, date, notes, the_version

REGISTRY: Final = "registry.example/fencepost"
"""Where REGISTRY does not name another one."""


def check(bases: dict[str, str]) -> None:
    """Raise ReleaseError unless the version may be released from these base images."""
    version = the_version()
    if date(version) is None:
        today = datetime.now(UTC).date()
        raise ReleaseError(f"CHANGELOG.md: [{version}] has no date: write `## [{version}] - {today}`")
    if unpinned := images.unpinned(bases):
        raise ReleaseError(f"{unpinned[0]} is not named by digest: set DEBIAN and GOLANG to NAME@sha256:…")


def write_sbom(image: str, into: Path) -> None:
    """Write the document of NAME@sha256:…, an image that the engine has. Raises ReleaseError."""
    name, _, digest = image.rpartition("/")[2].partition("@")
    listed = sbom.listing(Path("docker"), image)
    sbom.write(sbom.document(listed, name=name, version=the_version(), digest=digest), into)


def write_provenance(command: str, into: Path, bases: dict[str, str]) -> None:
    """Write the predicate of what this command made from this checkout, by BUILDER. Raises ReleaseError."""
    revision = output_of(["git", "rev-parse", "HEAD"]).strip()
    builder = os.environ.get("BUILDER", "python -m release")
    found = provenance.provenance(revision=revision, command=command, bases=bases, builder=builder)
    provenance.write(found, into)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="release", description="The parts of a release.")
    commands = top.add_subparsers(required=True, dest="command", metavar="COMMAND")
    commands.add_parser("version", help="print the version, if every place has the same")
    commands.add_parser("notes", help="print the changelog's section")
    commands.add_parser("check", help="refuse a version without a date, and bases without a digest")
    commands.add_parser("chart", help="package the chart with its registry")
    listing = commands.add_parser("sbom", help="write the CycloneDX document of an image")
    listing.add_argument("image", help="NAME@sha256:…")
    listing.add_argument("into", type=Path)
    origin = commands.add_parser("provenance", help="write SLSA's predicate of what a command made from this checkout")
    origin.add_argument("made_by", metavar="COMMAND")
    origin.add_argument("into", type=Path)
    commands.add_parser("dry-run", help="make and verify everything, and publish nothing")
    return top


def main() -> int:
    """Run one command; its exit code."""
    arguments = parser().parse_args()
    registry = os.environ.get("REGISTRY", REGISTRY)
    bases = {
        "DEBIAN": os.environ.get("DEBIAN", "debian:bookworm-slim"),
        "GOLANG": os.environ.get("GOLANG", "golang:1.26-bookworm"),
    }
    try:
        match arguments.command:
            case "version":
                sys.stdout.write(f"{the_version()}\n")
            case "notes":
                sys.stdout.write(notes(the_version()))
            case "check":
                check(bases)
            case "chart":
                INTO.mkdir(parents=True, exist_ok=True)
                sys.stdout.write(f"{chart.package(Path('helm'), INTO, registry=registry)}\n")
            case "sbom":
                write_sbom(arguments.image, arguments.into)
            case "provenance":
                write_provenance(arguments.made_by, arguments.into, bases)
            case _:
                DryRun(registry=registry, bases=bases).run()
    except ReleaseError as error:
        sys.stderr.write(f"release: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
