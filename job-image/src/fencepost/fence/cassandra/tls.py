"""TLS to Cassandra: the end points of nodes with a name to check, and what a failed handshake means."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from cassandra.connection import DefaultEndPoint, DefaultEndPointFactory

from fencepost.fence.errors import FenceTlsFailed, FenceUnavailable
from fencepost.fence.tls import CA, CERTIFICATE, KEY, reason


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
                f" ({CERTIFICATE} and {KEY} in the Secret) or refuses it ({reason(text)})"
            )
        for pattern, what, todo in _FAILURES if _TLS.search(text) else ():
            if pattern.search(text):
                return FenceTlsFailed(f"{doing}: {what} ({reason(text)})", remedy=todo)
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
