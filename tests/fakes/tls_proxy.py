"""Certificates, and a TLS listener in front of a Cassandra without TLS: real handshakes, real CQL."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fakes.listener import Listener
from fakes.relay import pass_on

_CONFIG = "[req]\ndistinguished_name=name\n[name]\n"
_KEY = ("-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as PEM in files."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority; what it signs is in its folder."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Authority:
        """Return a new one."""
        folder.mkdir()
        (folder / "openssl.cnf").write_text(_CONFIG)
        found = cls(folder)
        made = ("-keyout", "ca.key", "-out", "ca.crt", "-addext", "basicConstraints=critical,CA:TRUE")
        found._openssl("req", "-x509", "-config", "openssl.cnf", "-subj", "/CN=authority", "-days", "30", *_KEY, *made)
        return found

    @property
    def text(self) -> str:
        """The authority's certificate."""
        return (self.folder / "ca.crt").read_text()

    def sign(self, name: str, *, names: str = "DNS:client", days: int = 30) -> Pair:
        """Return a certificate for these names, which expires in so many days, or did."""
        request = ("-config", "openssl.cnf", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        self._openssl("req", *request, *_KEY)
        (self.folder / "names").write_text(f"subjectAltName={names}\n")
        signed = ("-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.crt")
        self._openssl("x509", "-req", *signed, "-days", str(days), "-extfile", "names")
        return Pair(self.folder / f"{name}.crt", self.folder / f"{name}.key")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, capture_output=True, check=True)


@contextmanager
def tls_in_front_of(
    host: str, port: int, own: Pair, *, clients: Authority | None = None, listen: int = 0
) -> Iterator[int]:
    """Listen on localhost with a certificate, and relay to a server; yield the port: `listen`, or a free one.

    With `clients`, a client must have a certificate of that authority.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=clients.text)

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as client:
            pass_on(client, (host, port))

    with contextlib.closing(Listener(serve, port=listen)) as listener:
        yield listener.port
