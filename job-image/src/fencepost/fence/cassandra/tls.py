"""TLS to Cassandra: the texts of a Secret, and the context for connections that they make.

Python's ssl loads a certificate with its key from a file only.  Here that is a file in memory, without a name, and it
ends with the call.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn, Self

from cassandra.connection import DefaultEndPoint, DefaultEndPointFactory

from fencepost.contract import CassandraTls
from fencepost.fence.errors import FenceTlsFailed, FenceUnavailable

CA: Final = "ca.crt"
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
PLACE: Final = "the Secret of spec.checkpoint.cassandra.tls"
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

    def context(self, options: CassandraTls) -> ssl.SSLContext:
        """Return the context for connections. Raises FenceTlsFailed, naming the key of the Secret that is wrong."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = options.verify_hostname
        try:
            context.load_verify_locations(cadata=self.authorities)
        except (ssl.SSLError, ValueError, TypeError) as error:  # ValueError, TypeError: text that is not ASCII
            raise _invalid(
                self.place,
                f"key {CA} holds no certificates that can be read ({_reason(error)})",
                f"store them as PEM in {CA}",
            ) from None
        if self.certificate is not None and self.key is not None:
            _load_pair(context, self.certificate, self.key, self.place)
        return context


def of_folder(folder: Path) -> TlsMaterial:
    """Return what a mounted Secret holds. Raises FenceTlsFailed, naming the key."""
    files = {name: folder / name for name in (CA, CERTIFICATE, KEY)}
    try:
        texts = {name: file.read_text(encoding="utf-8") for name, file in files.items() if file.is_file()}
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(PLACE, f"it cannot be read ({type(error).__name__})", "store PEM text in it") from None
    return TlsMaterial.of(texts)


class NamedEndPoint(DefaultEndPoint):  # type: ignore[misc]  # the library is untyped
    """The address of a node, and the name that its certificate is checked against. Equal to the address alone."""

    def __init__(self, address: str, port: int, name: str) -> None:
        super().__init__(address, port)
        self._name = name

    @property
    def ssl_options(self) -> dict[str, str]:
        """Arguments of `SSLContext.wrap_socket`."""
        return {"server_hostname": self._name}


class NamedEndPoints(DefaultEndPointFactory):  # type: ignore[misc]
    """Makes the end points of nodes that the cluster names: each has the one server name that all nodes have."""

    def __init__(self, port: int, server_name: str) -> None:
        super().__init__(port)
        self._server_name = server_name

    def create(self, row: object) -> NamedEndPoint:
        """Return the end point of a row of system.peers."""
        found = super().create(row)
        return NamedEndPoint(found.address, found.port, self._server_name)


def tls_failure(doing: str, causes: Iterable[object]) -> FenceTlsFailed | FenceUnavailable | None:
    """Return the error for the first of the causes that is a failed TLS connection, or None.

    A node that ends the connection may be one that restarts, so that is FenceUnavailable.
    """
    for text in map(str, causes):
        if _ENDED.search(text):
            return FenceUnavailable(
                f"{doing}: a node ended the TLS connection, as one does that asks for a client certificate"
                f" ({CERTIFICATE} and {KEY} in the Secret) or refuses it ({_reason(text)})"
            )
        for pattern, what, todo in _FAILURES if _TLS.search(text) else ():
            if pattern.search(text):
                return FenceTlsFailed(f"{doing}: {what} ({_reason(text)})", remedy=todo)
    return None


_ENDED: Final = re.compile(r"EOF occurred in violation", re.IGNORECASE)
_TLS: Final = re.compile(r"\[SSL|_ssl\.c")
_CLIENT: Final = f"store a certificate that the nodes' trust store accepts in {CERTIFICATE}, and its key in {KEY}"
_FAILURES: Final[tuple[tuple[re.Pattern[str], str, str], ...]] = (
    (
        re.compile(r"mismatch, certificate is not valid", re.IGNORECASE),
        "a node's certificate is for another name",
        "set spec.checkpoint.cassandra.tls.serverName to a name in every node's certificate",
    ),
    (
        re.compile(r"certificate has expired|certificate is not yet valid"),
        "a node's certificate is outside its validity",
        "renew the certificates of the nodes, or correct their clocks",
    ),
    (
        re.compile(r"CERTIFICATE_VERIFY_FAILED"),
        "a node's certificate cannot be verified",
        f"store the certificate of the authority that signed it in {CA} of the Secret of spec.checkpoint.cassandra.tls",
    ),
    (
        re.compile(r"CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE", re.IGNORECASE),
        "the nodes ask for a client certificate",
        _CLIENT,
    ),
    (
        re.compile(
            r"ALERT_UNKNOWN_CA|CERTIFICATE_(UNKNOWN|EXPIRED|REVOKED)|BAD_CERTIFICATE|DECRYPT_ERROR", re.IGNORECASE
        ),
        "the nodes refuse the client certificate",
        _CLIENT,
    ),
    (
        re.compile(r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|PACKET_LENGTH_TOO_LONG", re.IGNORECASE),
        "the nodes do not speak TLS at this port",
        "correct spec.checkpoint.cassandra.port, or remove spec.checkpoint.cassandra.tls",
    ),
    (
        re.compile(""),
        "the TLS handshake failed",
        "check client_encryption_options in cassandra.yaml of the nodes",
    ),
)
"""What OpenSSL says, what that means, and what to do. The first one that fits counts."""


def _load_pair(context: ssl.SSLContext, certificate: str, key: str, place: str) -> None:
    file = os.memfd_create("tls", os.MFD_CLOEXEC)
    try:
        with open(file, "w", encoding="utf-8", closefd=False) as memory:
            memory.write(f"{key.strip()}\n{certificate.strip()}\n")
        context.load_cert_chain(f"/proc/self/fd/{file}", password=_no_passphrase)
    except (ssl.SSLError, OSError, ValueError) as error:
        if "KEY_VALUES_MISMATCH" in str(error):
            raise _invalid(
                place,
                f"{KEY} is not the key of the certificate in {CERTIFICATE}",
                f"store a pair in {CERTIFICATE} and {KEY}",
            ) from None
        raise _invalid(
            place,
            f"{CERTIFICATE} and {KEY} cannot be read as a certificate and its key ({_reason(error)})",
            f"store PEM in {CERTIFICATE} and {KEY}, the key without a passphrase",
        ) from None
    finally:
        os.close(file)


def _no_passphrase() -> NoReturn:
    """Refuse a key with a passphrase; without this, OpenSSL would ask for it on the terminal."""
    raise ValueError("the key has a passphrase")


def _invalid(place: str, what: str, remedy: str) -> FenceTlsFailed:
    return FenceTlsFailed(f"{place}: {what}", remedy=remedy)


def _reason(error: object) -> str:
    """Return what OpenSSL says, in a few words; it names no content of the Secret."""
    return str(error)[-_LONGEST_REASON:] if error else type(error).__name__
