"""The chart as an OCI artefact, with the registry of its release among its defaults."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

import yaml

from release.command import output_of
from release.version import ROOT, ReleaseError

COMMAND: Final = "python -m release chart"


def package(helm: Path, into: Path, *, registry: str) -> Path:
    """Package the chart with this registry as the default of `image.registry`. Raises ReleaseError."""
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(folder) / "fencepost"
        shutil.copytree(ROOT / "charts/fencepost", chart)
        values = chart / "values.yaml"
        text, count = re.subn(r'^  registry: ""$', f"  registry: {registry}", values.read_text(), flags=re.MULTILINE)
        if count != 1:
            raise ReleaseError('charts/fencepost/values.yaml has no line `  registry: ""` of image')
        values.write_text(text)
        output_of([helm, "lint", "--strict", "--quiet", chart])
        output_of([helm, "package", chart, "--destination", into])
    (archive,) = into.glob("fencepost-*.tgz")
    return archive


def verify(helm: Path, archive: Path | str, image: str, *options: str) -> None:
    """Render the chart with its defaults: each container has this image. Raises ReleaseError."""
    rendered = output_of([helm, "template", "fencepost", archive, "--namespace=fencepost-system", *options])
    images = {
        container["image"]
        for found in yaml.safe_load_all(rendered)
        if found and "template" in found.get("spec", {})
        for container in found["spec"]["template"]["spec"]["containers"]
    }
    if images != {image}:
        raise ReleaseError(f"the chart's defaults have the images {sorted(images)}, not {image}")


def push(helm: Path, archive: Path, registry: str) -> str:
    """Push the chart to a registry on loopback without TLS, and return its digest. Raises ReleaseError."""
    words: list[str | Path] = [helm, "push", archive, f"oci://{registry}/charts", "--plain-http"]
    # Helm prints the digest on stderr, as its log.
    printed = output_of(["sh", "-c", '"$@" 2>&1', "sh", *words])
    found = re.search(r"Digest: (sha256:[0-9a-f]{64})", printed)
    if found is None:
        raise ReleaseError(f"helm push printed no digest: {printed}")
    return found[1]
