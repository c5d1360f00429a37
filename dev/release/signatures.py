"""Signatures and attestations by cosign, with a key pair that is made for the dry run; the workflow signs without keys.

Provenance is SLSA's predicate v1: what was built from which commit by which command.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from release.command import output_of

_LOCAL: Final = ("--allow-insecure-registry", "--allow-http-registry")
_NO_LOG: Final = ("--tlog-upload=false", "--use-signing-config=false", "--new-bundle-format=false")
"""A dry run leaves nothing in the public log of signatures."""
_PASSWORD: Final = {"COSIGN_PASSWORD": "", "COSIGN_YES": "true"}


@dataclass(frozen=True, slots=True)
class Signer:
    """A key pair in a folder, and cosign."""

    cosign: Path
    folder: Path

    def make_keys(self) -> None:
        """Make the pair. Raises ReleaseError."""
        output_of([self.cosign, "generate-key-pair", f"--output-key-prefix={self.folder / 'release'}"], env=_PASSWORD)

    def sign(self, reference: str) -> None:
        """Sign an image or a chart by digest. Raises ReleaseError."""
        self._ask("sign", *_NO_LOG, f"--key={self.folder / 'release.key'}", reference)

    def attest(self, reference: str, kind: str, predicate: Path) -> None:
        """Attach a predicate, `cyclonedx` or `slsaprovenance1`, with a signature. Raises ReleaseError."""
        key = f"--key={self.folder / 'release.key'}"
        self._ask("attest", *_NO_LOG, key, f"--type={kind}", f"--predicate={predicate}", reference)

    def verify(self, reference: str, *kinds: str) -> None:
        """Verify the signature and the attestations with the public key alone. Raises ReleaseError."""
        public = ("--insecure-ignore-tlog=true", f"--key={self.folder / 'release.pub'}")
        self._ask("verify", *public, reference)
        for kind in kinds:
            self._ask("verify-attestation", *public, f"--type={kind}", reference)

    def _ask(self, command: str, *words: str) -> str:
        return output_of([self.cosign, command, *_LOCAL, *words], env=_PASSWORD)


def provenance(*, revision: str, command: str, bases: Mapping[str, str]) -> dict[str, Any]:
    """Return SLSA's predicate of an image."""
    return {
        "buildDefinition": {
            "buildType": "https://slsa.dev/container-based-build/v0.1",
            "externalParameters": {"command": command, "bases": dict(bases)},
            "resolvedDependencies": [{"uri": "git+.", "digest": {"gitCommit": revision}}],
        },
        "runDetails": {"builder": {"id": "make release-dry-run"}, "metadata": {}},
    }


def write(predicate: dict[str, Any], path: Path) -> None:
    """Write a predicate."""
    path.write_text(json.dumps(predicate, indent=1) + "\n")
