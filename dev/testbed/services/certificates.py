"""Kafka's TLS: a certificate authority, the broker's certificate and one client's, made when the testbed comes up.

The Secret in the cluster is the original, the files in the home are what tests read. Nothing of it is checked in, and
the authority's key is deleted once both certificates are signed.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.cluster import Kubectl
from testbed.home import Home
from testbed.process import Transcript
from testbed.programs.host_packages import install
from testbed.services.credentials import KAFKA_PASSWORD, KAFKA_USERNAME
from testbed.services.kafka_and_cassandra import KEY_ANNOTATION, NAMESPACE, restricted_namespace

SECRET: Final = "kafka-tls"  # noqa: S105  # a name
BROKER_NAMES: Final = ("127.0.0.1", "localhost", f"kafka.{NAMESPACE}.svc.cluster.local", f"kafka.{NAMESPACE}.svc")
"""What clients reach the broker by."""
FILES: Final = ("ca.crt", "server.pem", "client.crt", "client.key")
"""`server.pem` is the broker's key and certificate, as Kafka's PEM key store wants them."""
DAYS: Final = 3650


def make_certificates(folder: Path, log: Transcript) -> None:
    """Write FILES into `folder`. Raises CommandError, StepError."""
    install(("openssl",), log)
    folder.mkdir(parents=True, exist_ok=True)
    names = ",".join(f"{'IP' if name[0].isdigit() else 'DNS'}:{name}" for name in BROKER_NAMES)
    authority, leaf = ["-CA", "ca.crt", "-CAkey", "ca.key"], "basicConstraints=critical,CA:FALSE"
    # Not the system's openssl.cnf, which would make each of them an authority.
    (folder / "openssl.cnf").write_text("[req]\ndistinguished_name=name\n[name]\n")
    _sign(folder, "ca", "/CN=fencepost-testbed", ["basicConstraints=critical,CA:TRUE"], [], log)
    _sign(folder, "server", "/CN=kafka", [leaf, f"subjectAltName={names}"], authority, log)
    _sign(folder, "client", f"/CN={KAFKA_USERNAME}", [leaf], authority, log)
    server = (folder / "server.key").read_text() + (folder / "server.crt").read_text()
    (folder / "server.pem").write_text(server)
    for name in ("openssl.cnf", "ca.key", "server.key", "server.crt"):
        (folder / name).unlink()


def _sign(
    folder: Path, name: str, subject: str, extensions: Sequence[str], authority: Sequence[str], log: Transcript
) -> None:
    """Make `name`.key, unencrypted PKCS #8, and `name`.crt; self-signed without an authority."""
    new = ["openssl", "req", "-x509", "-config", "openssl.cnf", "-days", str(DAYS), "-subj", subject, "-nodes"]
    new += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", f"{name}.key", "-out", f"{name}.crt"]
    log.run([*new, *(word for extension in extensions for word in ("-addext", extension)), *authority], cwd=folder)


@dataclass(frozen=True, slots=True)
class Certificates:
    """Step: the broker's Secret is in the cluster, and the client's files are in the home."""

    home: Home
    kubectl: Kubectl
    name: str = "kafka-certificates"
    doing: str = "making Kafka's certificates"
    needs: tuple[str, ...] = ("network",)

    def inputs(self) -> Mapping[str, str]:
        """What the certificates are for."""
        return {"names": " ".join(BROKER_NAMES), "user": f"{KAFKA_USERNAME}:{KAFKA_PASSWORD}", "files": " ".join(FILES)}

    def present(self, key: str) -> bool:
        """The Secret was made for this key, and the home has its files."""
        found = self._deployed(key)
        folder = self.home.kafka_tls
        return bool(found) and all(
            (folder / name).is_file() and (folder / name).read_bytes() == content for name, content in found.items()
        )

    def make(self, key: str, log: Transcript) -> None:
        """Copy the files out of the cluster; make them where it has none. Raises CommandError, StepError."""
        folder = self.home.kafka_tls
        if found := self._deployed(key):
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in found.items():
                (folder / name).write_bytes(content)
            return
        make_certificates(folder, log)
        texts = {name: (folder / name).read_text() for name in FILES}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET, "namespace": NAMESPACE, "annotations": {KEY_ANNOTATION: key}},
            "stringData": {**texts, "username": KAFKA_USERNAME, "password": KAFKA_PASSWORD},
        }
        self.kubectl.apply(restricted_namespace(NAMESPACE), log)
        self.kubectl.apply(json.dumps(secret), log)
        # A broker reads its certificate when it starts.
        self.kubectl.run("-n", NAMESPACE, "delete", "pod/kafka-0", "--ignore-not-found", log=log)

    def _deployed(self, key: str) -> dict[str, bytes]:
        """Return FILES of the Secret; empty when it does not exist or was made for another key."""
        found = json.loads(self.kubectl.ask("-n", NAMESPACE, "get", f"secret/{SECRET}", "-o", "json") or "{}")
        if found.get("metadata", {}).get("annotations", {}).get(KEY_ANNOTATION) != key:
            return {}
        return {name: base64.b64decode(found.get("data", {}).get(name, "")) for name in FILES}
