"""The images: built for this machine's architecture here, for all of docker-bake.hcl in the workflow."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from release.command import output_of
from release.version import ROOT, ReleaseError

BAKE: Final = ROOT / "docker-bake.hcl"
PREFIX: Final = "org.opencontainers.image."
USER: Final = "10001:0"


@dataclass(frozen=True, slots=True)
class Image:
    """One image of a release, and a command that proves that its parts are there."""

    name: str
    dockerfile: str
    proof: str


IMAGES: Final = (
    Image("fencepost-operator", "Dockerfile", "helm version --short && python -c 'import fencepost_operator.app'"),
    Image("fencepost-job", "job-image/Dockerfile", "java -version 2>&1 && python -c 'import fencepost, pyspark'"),
)


def build(docker: Path, image: Image, tag: str, *, labels: Mapping[str, str], secrets: Mapping[str, str]) -> None:
    """Build one image with the labels that docker-bake.hcl gives. Raises ReleaseError."""
    options = [f"--label={PREFIX}{name}={value}" for name, value in labels.items()]
    options += [f"--secret=id={name},src={file}" for name, file in secrets.items() if Path(file).is_file()]
    output_of(
        [docker, "build", "--quiet", f"--file={ROOT / image.dockerfile}", f"--tag={tag}", *options, ROOT],
        env={"DOCKER_BUILDKIT": "1"},
    )


def verify(docker: Path, image: Image, tag: str, *, version: str, revision: str) -> None:
    """Look at the labels and the user of an image, and run its proof without network. Raises ReleaseError."""
    (found,) = json.loads(output_of([docker, "image", "inspect", tag]))
    config: dict[str, Any] = found["Config"]
    wanted = {"title": image.name, "version": version, "revision": revision, "licenses": "Apache-2.0"}
    for name, value in wanted.items():
        if (said := config["Labels"].get(PREFIX + name)) != value:
            raise ReleaseError(f"{tag}: the label {PREFIX}{name} is {said}, not {value}")
    if config["User"] != USER:
        raise ReleaseError(f"{tag} runs as {config['User']}, not {USER}")
    options = ("--rm", "--network=none", "--read-only", "--tmpfs=/tmp", "--entrypoint=")
    output_of([docker, "run", *options, tag, "sh", "-c", image.proof])


def push(docker: Path, tag: str) -> str:
    """Push an image, and return its digest. Raises ReleaseError."""
    printed = output_of([docker, "push", tag])
    found = re.search(r"digest: (sha256:[0-9a-f]{64})", printed)
    if found is None:
        raise ReleaseError(f"docker push printed no digest: {printed}")
    return found[1]


def unpinned(bases: Mapping[str, str]) -> list[str]:
    """Return the base images that are not named by digest."""
    return [base for base in bases.values() if not re.search(r"@sha256:[0-9a-f]{64}$", base)]
