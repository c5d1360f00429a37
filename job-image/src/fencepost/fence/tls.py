"""TLS to the database of the fence: the texts of a Secret, and what clients need of them.

Python's ssl loads a certificate with its key from a file only, and libpq each of the three.  Here those are files in
memory, without a name, that end with the call.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn, Self

from fencepost.fence.errors import FenceTlsFailed

CA: Final = "ca.crt"
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
PLACE: Final = "the Secret of spec.checkpoint.cassandra.tls"
POSTGRESQL_PLACE: Final = "the Secret of spec.checkpoint.postgresql.tls"
LONGEST: Final = 256 * 1024
"""Characters of one key of the Secret; a certificate has some 2000."""
_LONGEST_REASON: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsMaterial:
    """What a Secret holds, as PEM: the authorities of the nodes' certificates, and a client certificate with its key.

    Neither `repr` nor an error shows any of it.
    """

    authorities: str = field(repr=False)
    certificate: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    place: str = PLACE
    """What holds the texts, for errors."""

    @classmethod
    def of(cls, texts: Mapping[str, str], place: str = PLACE) -> Self:
        """Return what is under the keys `ca.crt`, `tls.crt` and `tls.key`. Raises FenceTlsFailed, naming the key."""
        for name in (CA, CERTIFICATE, KEY):
            if len(texts.get(name, "")) > LONGEST:
                raise _invalid(
                    place, f"key {name} has more than {LONGEST} characters", f"store PEM text alone in {name}"
                )
        if not texts.get(CA):
            remedy = f"add {CA}: the certificates, as PEM, of the authorities that sign the nodes' certificates"
            raise _invalid(place, f"key {CA} is missing", remedy)
        if bool(texts.get(CERTIFICATE)) != bool(texts.get(KEY)):
            there, missing = (CERTIFICATE, KEY) if texts.get(CERTIFICATE) else (KEY, CERTIFICATE)
            remedy = f"add {missing}, or remove {there} if the nodes ask for no client certificate"
            raise _invalid(place, f"it has the key {there} and not {missing}", remedy)
        return cls(
            authorities=texts[CA],
            certificate=texts.get(CERTIFICATE) or None,
            key=texts.get(KEY) or None,
            place=place,
        )

    def context(self, *, verify_hostname: bool = True) -> ssl.SSLContext:
        """Return the context for connections. Raises FenceTlsFailed, naming the key of the Secret that is wrong."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = verify_hostname
        try:
            context.load_verify_locations(cadata=self.authorities)
        except (ssl.SSLError, ValueError, TypeError) as error:  # ValueError, TypeError: text that is not ASCII
            raise _invalid(
                self.place,
                f"key {CA} holds no certificates that can be read ({reason(error)})",
                f"store them as PEM in {CA}",
            ) from None
        if self.certificate is not None and self.key is not None:
            _load_pair(context, self.certificate, self.key, self.place)
        return context

    @contextmanager
    def files(self) -> Iterator[Mapping[str, str]]:
        """Hold paths of this process for the block: CA, and with a client certificate CERTIFICATE and KEY."""
        texts = {CA: self.authorities, CERTIFICATE: self.certificate, KEY: self.key}
        with ExitStack() as open_files:
            yield {name: open_files.enter_context(_in_memory(text)) for name, text in texts.items() if text}


def of_folder(folder: Path, place: str = PLACE) -> TlsMaterial:
    """Return what a mounted Secret holds. Raises FenceTlsFailed, naming the key."""
    files = {name: folder / name for name in (CA, CERTIFICATE, KEY)}
    try:
        texts = {name: file.read_text(encoding="utf-8") for name, file in files.items() if file.is_file()}
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(place, f"it cannot be read ({type(error).__name__})", "store PEM text in it") from None
    return TlsMaterial.of(texts, place)


def _load_pair(context: ssl.SSLContext, certificate: str, key: str, place: str) -> None:
    try:
        with _in_memory(f"{key.strip()}\n{certificate.strip()}\n") as path:
            context.load_cert_chain(path, password=_no_passphrase)
    except (ssl.SSLError, OSError, ValueError) as error:
        if "KEY_VALUES_MISMATCH" in str(error):
            raise _invalid(
                place,
                f"{KEY} is not the key of the certificate in {CERTIFICATE}",
                f"store a pair in {CERTIFICATE} and {KEY}",
            ) from None
        raise _invalid(
            place,
            f"{CERTIFICATE} and {KEY} cannot be read as a certificate and its key ({reason(error)})",
            f"store PEM in {CERTIFICATE} and {KEY}, the key without a passphrase",
        ) from None


@contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """Hold a path to the text, for this process alone."""
    file = os.memfd_create("tls", os.MFD_CLOEXEC)
    try:
        os.fchmod(file, 0o600)  # libpq refuses a key that others may read
        with open(file, "w", encoding="utf-8", closefd=False) as memory:
            memory.write(text)
        yield f"/proc/self/fd/{file}"
    finally:
        os.close(file)


def _no_passphrase() -> NoReturn:
    """Refuse a key with a passphrase; without this, OpenSSL would ask for it on the terminal."""
    raise ValueError("the key has a passphrase")


def _invalid(place: str, what: str, remedy: str) -> FenceTlsFailed:
    return FenceTlsFailed(f"{place}: {what}", remedy=remedy)


def reason(error: object) -> str:
    """Return what OpenSSL says, in a few words; it names no content of the Secret."""
    return str(error)[-_LONGEST_REASON:] if error else type(error).__name__
