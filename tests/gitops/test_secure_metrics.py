"""The installed chart serves metrics over TLS to those whom a token review lets in, and Prometheus scrapes them."""

from __future__ import annotations

import re
import secrets
import shlex
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from fakes import tls_proxy
from gitops.operators import installed, own_namespace, own_values
from gitops.service_monitor import ServiceMonitor
from harness.kubernetes.kubectl import Kubectl, Object
from harness.monitoring.prometheus import prometheus
from harness.processes import ask
from harness.waiting import eventually
from present import present
from testbed.environment import Environment
from testbed.images.built_images import REPOSITORY
from testbed.release import RELEASE

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]

SECRET: Final = "metrics-tls"  # noqa: S105 - an object's name
VALUES: Final = {
    "metrics.authentication": "true",
    "metrics.tls.secretName": SECRET,
    "metrics.serviceMonitor.interval": "1s",
}
READER: Final = "prometheus-k8s"
SCRAPER: Final = "fencepost-scraper"
"""The ServiceAccount, the Secret with its token and the binding of docs/operations.md."""
STRANGER: Final = "stranger"


class Authority:
    """A certificate authority, which renews the certificate of the operator's metrics."""

    def __init__(self, folder: Path, namespace: str) -> None:
        self._name = f"{namespace}-metrics.{namespace}.svc"
        self._signer = tls_proxy.Authority.make(folder)

    @property
    def file(self) -> Path:
        """The authority's own certificate."""
        return self._signer.folder / "ca.crt"

    def secret(self) -> Object:
        """Return the Secret with a new certificate, of the kind that cert-manager keeps."""
        pair = self._signer.sign("tls", names=f"DNS:{self._name}")
        files = {
            "ca.crt": self._signer.text, "tls.crt": pair.certificate.read_text(), "tls.key": pair.key.read_text()
        }  # fmt: skip
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
        bindings: list[str] = []
        try:
            bindings.extend(made(kubectl) for made in (grant, kept_token))
            yield {name: kubectl.run("create", "token", name, "--duration=2h").strip() for name in (READER, STRANGER)}
        finally:
            for binding in bindings:
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


def kept_token(kubectl: Kubectl) -> str:
    """Keep a reader's token in a Secret, by the objects of docs/operations.md; return the name of its binding."""
    text = (REPOSITORY / "docs" / "operations.md").read_text()
    (documented,) = re.findall(rf"^```yaml\n([^`]*name: {SCRAPER}\n[^`]*)```", text, re.MULTILINE)
    binding = f"{kubectl.namespace}-scraper"
    for one in yaml.safe_load_all(documented.replace("fencepost-system", kubectl.namespace)):
        if one["kind"] == "ClusterRoleBinding":
            one["metadata"]["name"] = binding
            one["roleRef"]["name"] = one["roleRef"]["name"].replace(RELEASE, kubectl.namespace)
        kubectl.apply(one)
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
    without_files = monitor(environment, kubectl, **{"metrics.serviceMonitor.authorization.secretName": SCRAPER})
    eventually(
        "the Secret has its token",
        lambda: "token" in (kubectl.get("secret", SCRAPER) or {}).get("data", {}),
        seconds=60,
    )
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
                ("kept", without_files, STRANGER),  # whose own token is not sent
                ("stranger", checked, STRANGER),
            )
        ]
        with prometheus(environment, folder / "prometheus", jobs=jobs) as scraping:
            leads = 'fencepost_operator_leader{job=~"reader|trusting|kept"} == 1'
            eventually("all three read the metrics", lambda: len(scraping.query(leads)) == 3, seconds=120)

            def last_error() -> str:
                targets = ask(f"{scraping.url}/api/v1/targets")["data"]["activeTargets"]
                return next(str(each["lastError"]) for each in targets if each["labels"]["job"] == "stranger")

            eventually("the stranger is refused", lambda: "403" in last_error(), seconds=120)
            assert not scraping.query('up{job="stranger"} == 1')
    service = present(kubectl.get("service", checked.service))
    assert [port["name"] for port in service["spec"]["ports"]] == ["https"], "nothing is served in the clear"


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
