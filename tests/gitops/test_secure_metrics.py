"""The installed chart serves metrics over TLS to those whom a token review lets in, and Prometheus scrapes them."""

from __future__ import annotations

import re
import secrets
import shlex
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from gitops.operators import installed, own_namespace, own_values
from gitops.service_monitor import ServiceMonitor, forwarded
from harness.kubectl import Kubectl, Object
from harness.processes import ask
from harness.prometheus import prometheus
from harness.waiting import eventually
from testbed.environment import Environment
from testbed.images import REPOSITORY

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]

SECRET: Final = "metrics-tls"  # noqa: S105 - an object's name
VALUES: Final = {
    "metrics.authentication": "true",
    "metrics.tls.secretName": SECRET,
    "metrics.serviceMonitor.interval": "1s",
}
READER: Final = "prometheus-k8s"
STRANGER: Final = "somebody"


class Authority:
    """A certificate authority, which renews the certificate of the operator's metrics."""

    def __init__(self, folder: Path, namespace: str) -> None:
        self._folder = folder
        self._name = f"{namespace}-metrics.{namespace}.svc"
        folder.mkdir()
        # Not the system's openssl.cnf, which would make each of them an authority.
        (folder / "openssl.cnf").write_text("[req]\ndistinguished_name=name\n[name]\n")
        self._sign("ca", "/CN=authority", "basicConstraints=critical,CA:TRUE")

    @property
    def file(self) -> Path:
        """The authority's own certificate."""
        return self._folder / "ca.crt"

    def secret(self) -> Object:
        """Return the Secret with a new certificate, of the kind that cert-manager keeps."""
        leaf = ("basicConstraints=critical,CA:FALSE", f"subjectAltName=DNS:{self._name}")
        self._sign("tls", f"/CN={self._name}", *leaf, by="ca")
        files = {name: (self._folder / name).read_text() for name in ("ca.crt", "tls.crt", "tls.key")}
        kind = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls"}
        return {**kind, "metadata": {"name": SECRET}, "stringData": files}

    def served(self, address: str) -> str:
        """Return the certificate that is served. Raises ssl.SSLError if this authority did not sign it."""
        host, _, port = address.rpartition(":")
        return ssl.get_server_certificate((host, int(port)), ca_certs=str(self.file), timeout=20)

    def status(self, address: str, token: str | None) -> int:
        """Return how a scrape is answered. Raises URLError if the certificate is not this authority's."""
        context = ssl.create_default_context(cafile=str(self.file))
        context.check_hostname = False  # the port is forwarded; Prometheus checks the name
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"https://{address}/metrics", headers=headers)
        try:
            with urllib.request.urlopen(request, context=context, timeout=30) as answer:  # noqa: S310 - https
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def _sign(self, name: str, subject: str, *extensions: str, by: str | None = None) -> None:
        authority = ["-CA", f"{by}.crt", "-CAkey", f"{by}.key"] if by else []
        subprocess.run(
            ["openssl", "req", "-x509", "-config", "openssl.cnf", "-days", "2", "-subj", subject, "-nodes", "-newkey",
             "rsa:2048", "-keyout", f"{name}.key", "-out", f"{name}.crt", *authority,
             *(word for extension in extensions for word in ("-addext", extension))],
            cwd=self._folder, check=True, capture_output=True,
        )  # fmt: skip


@pytest.fixture(scope="module")
def kubectl(environment: Environment) -> Iterator[Kubectl]:
    with own_namespace(environment, f"metrics-{secrets.token_hex(3)}") as found:
        yield found


@pytest.fixture(scope="module")
def authority(folder: Path, kubectl: Kubectl) -> Authority:
    return Authority(folder / "authority", kubectl.namespace)


@pytest.fixture(scope="module")
def tokens(environment: Environment, kubectl: Kubectl, authority: Authority) -> Iterator[dict[str, str]]:
    """Tokens of two ServiceAccounts, of which one may read; the operator is installed meanwhile."""
    kubectl.apply(authority.secret())
    for account in (READER, STRANGER):
        kubectl.run("create", "serviceaccount", account)
    with installed(environment, kubectl, VALUES):
        binding = grant(kubectl)
        try:
            yield {name: kubectl.run("create", "token", name, "--duration=2h").strip() for name in (READER, STRANGER)}
        finally:
            kubectl.delete("clusterrolebinding", binding)


def grant(kubectl: Kubectl) -> str:
    """Let the reader read, by the command of docs/operations.md with this test's names; return the binding's."""
    text = (REPOSITORY / "docs" / "operations.md").read_text()
    (documented,) = re.findall(r"^\$ kubectl (create clusterrolebinding .*)", text, re.MULTILINE)
    binding = f"{kubectl.namespace}-prometheus"
    names = {
        "prometheus-fencepost": binding,
        "--clusterrole=fencepost-metrics-reader": f"--clusterrole={kubectl.namespace}-metrics-reader",
        f"--serviceaccount=monitoring:{READER}": f"--serviceaccount={kubectl.namespace}:{READER}",
    }
    words = shlex.split(documented)
    assert names.keys() <= set(words)
    kubectl.run(*(names.get(word, word) for word in words))
    return binding


def monitor(environment: Environment, kubectl: Kubectl, **more: str) -> ServiceMonitor:
    """Return the ServiceMonitor of the release."""
    values = {**own_values(environment, kubectl.namespace), **VALUES, **more}
    return ServiceMonitor.rendered(environment, kubectl, values)


def test_who_may_read_the_metrics_does_and_so_does_prometheus(
    environment: Environment, kubectl: Kubectl, authority: Authority, tokens: dict[str, str], folder: Path
) -> None:
    checked = monitor(environment, kubectl)
    unchecked = monitor(environment, kubectl, **{"metrics.tls.hasAuthority": "false"})
    with checked.reached(folder / "forward.log") as address:
        assert authority.status(address, None) == 401
        assert authority.status(address, "no-token") == 401
        assert authority.status(address, tokens[STRANGER]) == 403
        eventually("its binding is in effect", lambda: authority.status(address, tokens[READER]) == 200, seconds=60)

        jobs = [
            found.scrape(job, address, token=tokens[account], folder=folder / job)
            for job, found, account in (
                ("reader", checked, READER),
                ("trusting", unchecked, READER),
                ("stranger", checked, STRANGER),
            )
        ]
        with prometheus(environment, folder / "prometheus", jobs=jobs) as scraping:
            leads = 'fencepost_operator_leader{job=~"reader|trusting"} == 1'
            eventually("both read the metrics", lambda: len(scraping.query(leads)) == 2, seconds=120)

            def last_error() -> str:
                targets = ask(f"{scraping.url}/api/v1/targets")["data"]["activeTargets"]
                return next(str(each["lastError"]) for each in targets if each["labels"]["job"] == "stranger")

            eventually("the stranger is refused", lambda: "403" in last_error(), seconds=120)
            assert not scraping.query('up{job="stranger"} == 1')
    with forwarded(kubectl, f"service/{checked.service}", "http", folder / "plain.log") as address:
        assert plain(address, "/healthz") == 200
        assert plain(address, "/metrics") == 404


def plain(address: str, path: str) -> int:
    """Return how the port without TLS answers."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_renewed_certificate_is_in_use_without_a_restart(
    environment: Environment, kubectl: Kubectl, authority: Authority, tokens: dict[str, str], folder: Path
) -> None:
    """The Secret gets another certificate of the same authority, and then one that cannot be used."""

    def pod() -> tuple[str, int]:
        (found,) = kubectl.items("pods", "--field-selector=status.phase=Running")
        (container,) = found["status"]["containerStatuses"]
        return found["metadata"]["uid"], container["restartCount"]

    before = pod()
    found = monitor(environment, kubectl)
    with found.reached(folder / "renewal.log") as address:
        job = found.scrape("renewal", address, token=tokens[READER], folder=folder / "renewal")
        with prometheus(environment, folder / "prometheus-renewal", jobs=[job]) as scraping:
            eventually("Prometheus scrapes", lambda: scraping.query("up == 1"), seconds=60)
            first = authority.served(address)
            kubectl.apply(authority.secret())
            # The kubelet looks about once in a minute, and the operator every 10 s.
            eventually("another certificate is served", lambda: authority.served(address) != first, seconds=300)
            assert authority.status(address, tokens[READER]) == 200
            eventually("Prometheus scrapes on", lambda: scraping.query("up == 1"), seconds=60)

            renewed = authority.served(address)
            kubectl.apply({**authority.secret(), "stringData": {"tls.key": "no key"}})
            said = "the certificate of the metrics stays as it was"
            eventually("the operator says so", lambda: said in kubectl.run("logs", deployment(kubectl)), seconds=300)
            assert authority.served(address) == renewed
            assert authority.status(address, tokens[READER]) == 200
    assert pod() == before


def deployment(kubectl: Kubectl) -> str:
    """Return the operator's Deployment, for kubectl logs."""
    return f"deployment/{kubectl.namespace}"
