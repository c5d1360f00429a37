"""Signatures and attestations by cosign, with a key pair that is made for the dry run; the workflow signs without keys.

An artefact is an image or a chart of a registry, named by digest, or a file, whose attestation is a bundle beside it.
"""

from __future__ import annotations

import base64
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from release.command import output_of
from release.version import ReleaseError

_LOCAL: Final = ("--allow-insecure-registry", "--allow-http-registry")
_NO_LOG: Final = ("--tlog-upload=false", "--use-signing-config=false")
"""A dry run leaves nothing in the public log of signatures."""
_PASSWORD: Final = {"COSIGN_PASSWORD": "", "COSIGN_YES": "true"}
_REFUSED: Final = "provided artifact digest does not match any digest in statement"
"""What cosign says of an artefact that is not what was signed. One without signatures would prove nothing."""


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
        self._ask("sign", *_LOCAL, *_NO_LOG, self._private, reference)

    def attest(self, reference: str, kind: str, predicate: Path) -> None:
        """Attach a predicate, `cyclonedx` or `slsaprovenance1`, with a signature. Raises ReleaseError."""
        options = (f"--type={kind}", f"--predicate={predicate}")
        self._ask("attest", *_LOCAL, *_NO_LOG, self._private, *options, reference)

    def verify(self, reference: str, **predicates: Path) -> None:
        """Verify with the public key alone: the signature, and that each kind attests this predicate.

        Raises ReleaseError.
        """
        self._ask("verify", *_LOCAL, *self._public, reference)
        for kind, predicate in predicates.items():
            printed = self._ask("verify-attestation", *_LOCAL, *self._public, f"--type={kind}", reference)
            compare(statements(printed), json.loads(predicate.read_text()), reference)

    def refuse(self, reference: str, *kinds: str) -> None:
        """Verify an artefact that was changed after it was signed. Raises ReleaseError unless all of it is refused."""
        self._refused("verify", *_LOCAL, *self._public, reference)
        for kind in kinds:
            self._refused("verify-attestation", *_LOCAL, *self._public, f"--type={kind}", reference)

    def attest_file(self, file: Path, predicate: Path) -> Path:
        """Write the bundle with the provenance of a file, and return its path. Raises ReleaseError."""
        bundle = file.with_name(f"{file.name}.sigstore.json")
        options = ("--type=slsaprovenance1", f"--predicate={predicate}", f"--bundle={bundle}")
        self._ask("attest-blob", *_NO_LOG, self._private, *options, str(file))
        return bundle

    def verify_file(self, file: Path, bundle: Path, predicate: Path) -> None:
        """Verify with the public key alone that a bundle attests this predicate of a file. Raises ReleaseError."""
        self._ask("verify-blob-attestation", *self._of_file(bundle), str(file))
        envelope = json.loads(bundle.read_text())["dsseEnvelope"]
        compare(statements(json.dumps(envelope)), json.loads(predicate.read_text()), file.name)

    def refuse_file(self, file: Path, bundle: Path) -> None:
        """Verify a copy of a file with one more byte. Raises ReleaseError unless it is refused."""
        changed = self.folder / file.name
        shutil.copyfile(file, changed)
        with changed.open("ab") as end:
            end.write(b"\0")
        self._refused("verify-blob-attestation", *self._of_file(bundle), str(changed))

    @property
    def _private(self) -> str:
        return f"--key={self.folder / 'release.key'}"

    @property
    def _public(self) -> tuple[str, ...]:
        return "--insecure-ignore-tlog=true", f"--key={self.folder / 'release.pub'}"

    def _of_file(self, bundle: Path) -> tuple[str, ...]:
        return *self._public, "--type=slsaprovenance1", f"--bundle={bundle}"

    def _refused(self, command: str, *words: str) -> None:
        try:
            self._ask(command, *words)
        except ReleaseError as error:
            if _REFUSED in str(error):
                return
            raise
        raise ReleaseError(f"cosign {command} takes {words[-1]}, which was changed after it was signed")

    def _ask(self, command: str, *words: str) -> str:
        return output_of([self.cosign, command, *words], env=_PASSWORD)


def statements(envelopes: str) -> list[dict[str, Any]]:
    """Return the in-toto statements of DSSE envelopes in JSON, one per line."""
    payloads = (json.loads(line)["payload"] for line in envelopes.splitlines() if line.strip())
    return [json.loads(base64.b64decode(payload)) for payload in payloads]


def compare(found: list[dict[str, Any]], predicate: Any, what: str) -> None:
    """Raise ReleaseError unless one statement has this predicate."""
    if not any(statement.get("predicate") == predicate for statement in found):
        raise ReleaseError(f"no attestation of {what} has the predicate that was attested")
