"""A release without publishing it: every part is made, pushed to a registry on loopback, and verified from there."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from release import chart, images, provenance, sbom, signatures, wheels
from release.command import output_of
from release.registry import changed_copy, local_registry
from release.version import ROOT, date, notes, the_version
from testbed.engine import SECRETS
from testbed.home import Home

INTO: Final = ROOT / "build/release"


def say(text: str) -> None:
    """Print what was done."""
    sys.stdout.write(f"release: {text}\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """One of them; `registry` is what the chart names, `bases` the base images by the Dockerfiles' arguments."""

    registry: str
    bases: Mapping[str, str]
    version: str = field(default_factory=the_version)
    revision: str = field(default_factory=lambda: output_of(["git", "rev-parse", "HEAD"]).strip())
    programs: Path = field(default_factory=lambda: Home.of_user().bin)

    @property
    def scratch(self) -> Path:
        """What the dry run itself needs: keys and the registry's blobs."""
        return INTO / "scratch"

    @property
    def operator_image(self) -> str:
        """The image that the chart names."""
        return f"{self.registry}/fencepost-operator:{self.version}"

    def run(self) -> None:
        """Make and verify each part, in build/release. Raises ReleaseError."""
        shutil.rmtree(INTO, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        try:
            self._text()
            packed = self._wheels()
            archive = self._chart()
            signer = self._signer()
            if signer is not None:
                self._attested_wheels(signer, packed)
            with local_registry(self.programs / "docker-registry", self.scratch) as local:
                for image in images.IMAGES:
                    reference = self._image(image, local)
                    if signer is not None:
                        self._signed_image(signer, image, reference)
                pushed = self._pushed_chart(archive, local)
                if signer is not None:
                    origin = self._provenance("chart", chart.COMMAND, {})
                    self._signed(signer, "chart", pushed, slsaprovenance1=origin)
        finally:
            shutil.rmtree(self.scratch)
        say(f"build/release has {', '.join(sorted(path.name for path in INTO.iterdir()))}")

    def _text(self) -> None:
        say(f"version: {self.version} in every place")
        (INTO / "notes.md").write_text(notes(self.version))
        say(
            "changelog: "
            + (f"of {date(self.version)}" if date(self.version) else "has no date yet, which a release needs")
        )
        if missing := images.unpinned(self.bases):
            say(f"bases: {', '.join(missing)} not by digest, which a release needs")

    def _wheels(self) -> list[Path]:
        packed = wheels.build(Path(os.environ.get("UV", "uv")), INTO)
        wheels.verify(packed, self.version)
        say("wheels: three, each with the files of its source and nothing else")
        return packed

    def _attested_wheels(self, signer: signatures.Signer, packed: list[Path]) -> None:
        origin = self._provenance("wheels", wheels.COMMAND, {})
        for wheel in packed:
            bundle = signer.attest_file(wheel, origin)
            signer.verify_file(wheel, bundle, origin)
            signer.refuse_file(wheel, bundle)
        say("wheels: provenance verified with the public key; with one more byte, each is refused")

    def _chart(self) -> Path:
        helm = self.programs / "helm"
        archive = chart.package(helm, INTO, registry=self.registry)
        chart.verify(helm, archive, self.operator_image)
        say(f"chart: {archive.name}, whose default image is {self.operator_image}")
        return archive

    def _signer(self) -> signatures.Signer | None:
        cosign = self.programs / "cosign"
        if not cosign.exists():
            say(f"signatures: left out, {cosign} is not built")
            return None
        signer = signatures.Signer(cosign, self.scratch)
        signer.make_keys()
        return signer

    def _image(self, image: images.Image, local: str) -> str:
        docker, tag = self.programs / "docker", f"{local}/{image.name}:{self.version}"
        made = datetime.fromtimestamp(int(output_of(["git", "log", "-1", "--format=%ct"])), UTC).isoformat()
        labels = {"revision": self.revision, "created": made, "base.name": self.bases["DEBIAN"]}
        images.build(docker, image, tag, labels=labels, secrets=SECRETS)
        try:
            images.verify(docker, image, tag, version=self.version, revision=self.revision)
            reference = f"{local}/{image.name}@{images.push(docker, tag)}"
            listed = sbom.listing(docker, tag)
        finally:
            output_of([docker, "image", "rm", tag])
        digest = reference.partition("@")[2]
        found = sbom.document(listed, name=image.name, version=self.version, digest=digest)
        sbom.write(found, self._bom(image))
        say(f"{image.name}: built, labelled, run, pushed; its SBOM has {len(found['components'])} components")
        return reference

    def _bom(self, image: images.Image) -> Path:
        return INTO / f"{image.name}.cdx.json"

    def _signed_image(self, signer: signatures.Signer, image: images.Image, reference: str) -> None:
        origin = self._provenance(image.name, f"docker build -f {image.dockerfile} .", self.bases)
        self._signed(signer, image.name, reference, cyclonedx=self._bom(image), slsaprovenance1=origin)

    def _provenance(self, name: str, command: str, bases: Mapping[str, str]) -> Path:
        origin = provenance.provenance(
            revision=self.revision, command=command, bases=bases, builder="make release-dry-run"
        )
        return provenance.write(origin, INTO / f"{name}.provenance.json")

    def _signed(self, signer: signatures.Signer, name: str, reference: str, **predicates: Path) -> None:
        signer.sign(reference)
        signer.verify(reference)  # before attestations are there, which cosign takes for signatures too
        for kind, predicate in predicates.items():
            signer.attest(reference, kind, predicate)
        signer.verify(reference, **predicates)
        signer.refuse(changed_copy(reference), *predicates)
        say(f"{name}: signature and {', '.join(predicates)} verified with the public key; a changed copy is refused")

    def _pushed_chart(self, archive: Path, local: str) -> str:
        helm = self.programs / "helm"
        digest = chart.push(helm, archive, local)
        options = (f"--version={self.version}", "--plain-http")
        chart.verify(helm, f"oci://{local}/charts/fencepost", self.operator_image, *options)
        say(f"chart: pushed as {digest}, pulled and rendered")
        return f"{local}/charts/fencepost@{digest}"
