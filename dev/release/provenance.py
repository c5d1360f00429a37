"""Provenance: which commit, command and base images an artefact was made from, as SLSA's predicate v1."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

BUILD_TYPE: Final = "https://fencepost.dev/releases/command/v1"
"""A build is one command in a checkout of a commit; docs/releases.md has its parameters."""


def provenance(*, revision: str, command: str, bases: Mapping[str, str], builder: str) -> dict[str, Any]:
    """Return the predicate of an artefact; `bases` are the base images, by the Dockerfile's arguments."""
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"command": command, "bases": dict(bases)},
            "resolvedDependencies": [{"uri": "git+.", "digest": {"gitCommit": revision}}, *_images(bases)],
        },
        "runDetails": {"builder": {"id": builder}, "metadata": {}},
    }


def _images(bases: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the base images that are named by digest."""
    split = (base.partition("@sha256:") for base in bases.values())
    return [{"uri": f"docker://{name}", "digest": {"sha256": digest}} for name, _, digest in split if digest]


def write(predicate: dict[str, Any], path: Path) -> Path:
    """Write a predicate, and return its path."""
    path.write_text(json.dumps(predicate, indent=1) + "\n")
    return path
