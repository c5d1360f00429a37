"""Pages from end to end: a real operator, real Secrets, and real receivers; the operator is killed between two steps.

A mail server, the real Alertmanager, and web servers that play PagerDuty, a tenant's hook and a dead man's switch.
"""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.request import urlopen

import pytest

from contract.cassandra import open_session
from fencepost.fence.cassandra.table import CassandraFenceTable
from fencepost_operator.api import GROUP, SILENCE_ANNOTATION
from flights.topics import Topics
from harness.kubernetes.kubectl import Kubectl, Object
from harness.monitoring.alertmanager import Alertmanager, Receiver, alertmanager, receiver
from harness.monitoring.page_receivers import Hooks, Mailbox, Reply, hooks, mailbox
from harness.processes import free_port
from harness.topics import produce, set_retention
from harness.waiting import eventually
from integration.lifecycle.kubelet import Kubelet
from integration.lifecycle.operators import HOME, Installed
from integration.lifecycle.test_endings_and_upgrades import Stage, is_ready
from testbed.environment import Environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

PLACE: Final = "paged"
KEY: Final = "0123456789abcdef0123456789abcdef"
OPERATORS: Final = 4
"""Receivers of the operator's own Secret."""
WAIT: Final = 4
"""Seconds after which the web hook asks to be tried again, more than the first pause without being asked."""


class PageState:
    """All receivers, and the cluster. `forbidden` is one that a tenant names, outside of `allowedEndpoints`."""

    def __init__(
        self, stage: Stage, hub: Hooks, forbidden: Hooks, mails: Mailbox, am: Alertmanager, alerts: Receiver
    ) -> None:
        self.stage, self.hub, self.mails, self.am, self.alerts = stage, hub, mails, am, alerts
        self.forbidden = forbidden
        self.kubectl = stage.in_namespace(PLACE)

    def secret(self, kubectl: Kubectl, name: str, **data: str) -> None:
        kubectl.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data})

    @property
    def settings(self) -> dict[str, str]:
        return {
            "FENCEPOST_PAGES_SECRET": "receivers",
            "FENCEPOST_PAGES_NOT_READY_FOR": "4s",
            "FENCEPOST_PAGES_RESOLVE_AFTER": "2s",
            "FENCEPOST_PAGERDUTY_URL": f"http://127.0.0.1:{self.hub.port}/v2/enqueue",
            "FENCEPOST_HEARTBEAT_SECRET": "receivers",
            "FENCEPOST_HEARTBEAT_INTERVAL_SECONDS": "1",
            "FENCEPOST_ALLOWED_ENDPOINTS": ",".join(
                [
                    f"127.0.0.1:{self.hub.port}",
                    f"{self.stage.environment.cassandra_host}:{self.stage.environment.cassandra_port}",
                    *(f"{server}" for server in self.stage.environment.kafka_host.split(",")),
                ]
            ),
        }

    def events(self, action: str, name: str, reason: str) -> list[Object]:
        """Return what PagerDuty got about an incident."""
        key = f"/{PLACE}/{name}/{reason}/"
        return [event for event in self.hub.events(action) if key in event["dedup_key"]]

    def pages(self, name: str) -> list[Object]:
        found = self.kubectl.get("spl", name)
        return list((found or {}).get("status", {}).get("pages", []))

    def sent(self, name: str, reason: str, outcome: str) -> set[str]:
        """Return the receivers that the status says know it."""
        return {
            each["receiver"]
            for page in self.pages(name)
            for each in page.get("sent", [])
            if page["reason"] == reason and each["outcome"] == outcome
        }


def name_receivers(paging: PageState) -> None:
    """Create the operator's Secret."""
    hub, mails, am = paging.hub, paging.mails, paging.am
    paging.secret(
        paging.stage.installed.plane.kubectl(HOME),
        "receivers",
        apprise=(
            f"# two\njson://127.0.0.1:{hub.port}/own\n"
            f"mailto://127.0.0.1:{mails.port}?from=fencepost@example.com&to=oncall@example.com"
        ),
        pagerduty=KEY,
        alertmanager=f"http://{am.address}",
        heartbeat=f"http://127.0.0.1:{hub.port}/beat",
    )


@pytest.fixture
def team(paging: PageState) -> Iterator[None]:
    """Have a Secret in the namespace with a receiver, one that is forbidden, and a line that is none."""
    lines = (
        f"json://127.0.0.1:{paging.hub.port}/team",
        f"json://127.0.0.1:{paging.forbidden.port}/forbidden",
        "file:///etc/passwd",
    )
    paging.secret(paging.kubectl, "fencepost-pages", apprise="\n".join(lines))
    yield
    paging.kubectl.delete("secret", "fencepost-pages")


@pytest.fixture(scope="module")
def paging(
    installed: Installed, environment: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PageState]:
    mark, session = secrets.token_hex(3), open_session()
    keyspace = f"paged_{mark}"
    stage = Stage(installed, environment, f"paged-{mark}", keyspace, session)
    with (
        hooks() as hub,
        hooks() as forbidden,
        mailbox() as mails,
        receiver() as alerts,
        alertmanager(environment, tmp_path_factory.mktemp("am"), webhook=alerts.url) as am,
    ):
        made = PageState(stage, hub, forbidden, mails, am, alerts)
        name_receivers(made)
        with Kubelet(installed.plane, CassandraFenceTable.over(session, keyspace)).at_work():
            yield made
    session.execute(f"DROP KEYSPACE IF EXISTS {keyspace}")
    session.cluster.shutdown()
    Topics(environment.kafka_host).delete(stage.topic)


@pytest.mark.long
def test_an_operator_that_is_killed_between_the_record_and_the_send_sends_after_its_restart(paging: PageState) -> None:
    """The operator's Secret is missing: the incident is recorded, and has no receiver. Then it is killed."""
    name, port = "unsent", free_port()
    paging.stage.installed.plane.kubectl(HOME).delete("secret", "receivers")
    with paging.stage.installed.killable(**paging.settings, FENCEPOST_METRICS_PORT=str(port)) as operator:
        paging.kubectl.apply(wrong(paging, name))
        eventually("it is recorded", lambda: paging.pages(name), seconds=60)
        eventually("it counts as not delivered", lambda: unsent_seconds(port) > 1, seconds=30)
        operator.kill()
        operator.wait()
    assert not operators(paging, name)
    assert not paging.events("trigger", name, "InvalidSpec")
    name_receivers(paging)
    with paging.stage.installed.killable(**paging.settings, FENCEPOST_METRICS_PORT=str(port)):
        eventually("PagerDuty got it", lambda: paging.events("trigger", name, "InvalidSpec"), seconds=60)
        eventually("each is recorded", lambda: len(operators(paging, name)) == OPERATORS, seconds=60)
        eventually("no page of any pipeline waits", lambda: not unsent_seconds(port), seconds=60)
        paging.kubectl.delete("spl", name)


def wrong(paging: PageState, name: str) -> Object:
    """Return a suspended pipeline whose spec is invalid."""
    manifest = paging.stage.manifest(name, suspend=True)
    manifest["spec"]["source"]["kafka"]["properties"] = {"no.such.property": "x"}
    return manifest


def operators(paging: PageState, name: str) -> set[str]:
    """Return the receivers of the operator's own that know of the invalid spec."""
    return {each for each in paging.sent(name, "InvalidSpec", "opened") if each.startswith("operator/")}


def unsent_seconds(port: int) -> float:
    """Return for how long the oldest page to the operator's own receivers waits, as Prometheus would read it."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        samples = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#"))
    return float(samples['fencepost_pages_oldest_unsent_seconds{owner="operator"}'])


def keys(events: list[Object]) -> set[str]:
    return {event["dedup_key"] for event in events}


@pytest.mark.usefixtures("team")
def test_an_operator_that_is_killed_before_it_records_a_receipt_sends_again(paging: PageState) -> None:
    """The topic is missing. PagerDuty takes the first request and does not answer; then the operator is killed."""
    hub, name = paging.hub, "orders"
    hub.silent["/v2/enqueue"] = answer = threading.Event()
    with paging.stage.installed.killable(**paging.settings) as operator:
        paging.kubectl.apply(paging.stage.manifest(name))
        eventually("PagerDuty got the page", lambda: paging.events("trigger", name, "NotReady"), seconds=120)
        (page,) = [page for page in paging.pages(name) if page["reason"] == "NotReady"]
        assert page["severity"] == "critical", "recorded before it was sent"
        assert not [each for each in paging.sent(name, "NotReady", "opened") if "pagerduty" in each]
        eventually("the heart beats", lambda: hub.got("/beat"), seconds=30)
        operator.kill()
        operator.wait()
    hub.silent.clear()
    answer.set()
    hub.posted["/beat"].clear()
    before = len(paging.events("trigger", name, "NotReady"))
    with paging.stage.installed.killable(**paging.settings):
        eventually(
            "PagerDuty got it again", lambda: len(paging.events("trigger", name, "NotReady")) > before, seconds=90
        )
        all_receivers = OPERATORS + 1
        eventually(
            "each is recorded", lambda: len(paging.sent(name, "NotReady", "opened")) == all_receivers, seconds=90
        )
        assert len(keys(paging.events("trigger", name, "NotReady"))) == 1, "twice, with one key"
        key = keys(paging.events("trigger", name, "NotReady")).pop()
        details = paging.events("trigger", name, "NotReady")[-1]["payload"]["custom_details"]
        assert "Kafka has no topic" in details["What happened"]
        assert details["Look at it"] == f"kubectl describe spl -n {PLACE} {name}"
        assert any(subject.startswith(f"[critical] {PLACE}/{name} NotReady") for subject in paging.mails.subjects())
        for path in ("/own", "/team"):
            assert [body for body in hub.got(path) if f"{PLACE}/{name} NotReady" in body["title"]]
        assert not paging.forbidden.connections
        firing = eventually("Alertmanager reports", lambda: paging.alerts.received("FencepostNotReady"), seconds=60)
        assert firing["labels"]["incident"] == key
        eventually("the heart beats again", lambda: hub.got("/beat"), seconds=30)
        degraded(paging, name)
        Topics(paging.stage.environment.kafka_host).create(paging.stage.topic, 1)
        eventually("it streams", lambda: is_ready(paging.kubectl.get("spl", name)), seconds=180)
        eventually("PagerDuty receives it", lambda: paging.events("resolve", name, "NotReady"), seconds=60)
        assert keys(paging.events("resolve", name, "NotReady")) == {key}
        eventually("Alertmanager reports", lambda: paging.alerts.received("FencepostNotReady", "resolved"), seconds=60)
        over = f"Resolved: {PLACE}/{name} NotReady"
        eventually("mail", lambda: [s for s in paging.mails.subjects() if s.startswith(over)], seconds=60)
        # One receiver of the namespace is out of reach, so the incident stays for a day; the others get it once.
        eventually("recorded", lambda: len(paging.sent(name, "NotReady", "resolved")) == all_receivers, seconds=60)
        assert not paging.forbidden.connections, "a tenant's line outside of allowedEndpoints was not contacted"
        socket.create_connection(("127.0.0.1", paging.forbidden.port), timeout=5).close()
        eventually("a connection would have been seen", lambda: paging.forbidden.connections == 1, seconds=10)


def degraded(paging: PageState, name: str) -> None:
    """The line without a valid receiver is named, and its content is not repeated."""

    def condition() -> Any:
        found = (paging.kubectl.get("spl", name) or {})["status"]["conditions"]
        return next((each for each in found if each["type"] == "PagingDegraded"), None)

    said = eventually("the bad line is named", condition, seconds=60)
    assert said["reason"] == "ReceiverInvalid"
    assert f"Secret {PLACE}/fencepost-pages, key apprise, line 3" in said["message"]
    assert "/etc/passwd" not in said["message"]


def test_a_stalled_pipeline_pages_unless_it_is_silenced_and_its_deletion_resolves(paging: PageState) -> None:
    name = "stalled"
    paging.hub.replies["/own"] = [Reply(429, {"Retry-After": str(WAIT)}), Reply(503)]
    with paging.stage.installed.killable(**paging.settings):
        manifest = paging.stage.manifest(name, suspend=True)
        manifest["metadata"]["annotations"] = {f"{GROUP}/silence-until": "2999-01-01T00:00:00Z"}
        paging.kubectl.apply(manifest)
        eventually("it is suspended", lambda: is_ready(paging.kubectl.get("spl", name)), seconds=90)
        wrong = {"spec": {"source": {"kafka": {"properties": {"no.such.property": "x"}}}}}
        paging.kubectl.patch("spl", name, wrong)
        eventually("PagerDuty got it", lambda: paging.events("trigger", name, "InvalidSpec"), seconds=60)
        reasons = {event["reason"] for event in paging.kubectl.items("events")}
        assert "SilenceInvalid" in reasons, "a silence needs an end within thirty days"
        first, second, _ = eventually("the hook took it at last", lambda: three_tries(paging, name), seconds=60)
        assert second - first >= WAIT, "not before its Retry-After"
        eventually("and is recorded", lambda: len(operators(paging, name)) == OPERATORS, seconds=60)
        assert paging.hub.replies["/own"] == []
        paging.kubectl.delete("spl", name)
        assert paging.events("resolve", name, "InvalidSpec"), "sent before the object is gone"


def three_tries(paging: PageState, name: str) -> list[float] | None:
    """When the operator's web hook got the page for the first three times, None before."""
    got = [at for at, body in paging.hub.arrivals("/own") if f"{PLACE}/{name} InvalidSpec" in body["title"]]
    return got[:3] if len(got) > 2 else None


@pytest.mark.long
def test_a_silence_ends_and_what_is_still_wrong_is_sent(paging: PageState) -> None:
    """Silenced for hours, then for seconds. Beside it a suspended pipeline whose records Kafka is about to delete."""
    name, forgotten, hub = "silent", "forgotten", paging.hub
    topic, bootstrap = f"{paging.stage.topic}-old", paging.stage.environment.kafka_host
    Topics(bootstrap).create(topic, 1)
    set_retention(bootstrap, topic, hours=1)
    with paging.stage.installed.killable(**paging.settings):
        manifest = paging.stage.manifest(name, suspend=True)
        manifest["metadata"]["annotations"] = {SILENCE_ANNOTATION: moment(hours=2)}
        reading = paging.stage.manifest(forgotten)
        reading["spec"]["source"]["kafka"]["topics"] = [topic]
        paging.kubectl.apply(manifest, reading)
        eventually("it is suspended", lambda: is_ready(paging.kubectl.get("spl", name)), seconds=90)
        paging.kubectl.patch("spl", name, {"spec": {"source": {"kafka": {"properties": {"no.such.property": "x"}}}}})
        eventually("it is recorded", lambda: paging.pages(name), seconds=60)

        eventually("it streams", lambda: is_ready(paging.kubectl.get("spl", forgotten)), seconds=180)
        paging.kubectl.patch("spl", forgotten, {"spec": {"suspend": True}})
        eventually("it is suspended", lambda: is_ready(paging.kubectl.get("spl", forgotten)), seconds=180)
        produce(bootstrap, topic, count=20, age=50 * 60)
        eventually("the risk is paged", lambda: paging.events("trigger", forgotten, "DataExpiresSoon"), seconds=120)
        eventually("and recorded", lambda: paging.sent(forgotten, "DataExpiresSoon", "opened"), seconds=60)
        assert is_ready(paging.kubectl.get("spl", forgotten)), "suspended all the time"
        assert not paging.events("trigger", name, "InvalidSpec"), "no receiver got the silenced one meanwhile"

        until = datetime.now(UTC) + timedelta(seconds=5)
        paging.kubectl.patch("spl", name, {"metadata": {"annotations": {SILENCE_ANNOTATION: until.isoformat()}}})
        eventually("it is sent", lambda: paging.events("trigger", name, "InvalidSpec"), seconds=90)
        (at, *_) = [at for at, event in hub.arrivals("/v2/enqueue") if f"/{name}/InvalidSpec/" in event["dedup_key"]]
        assert at >= until.timestamp(), "not before the silence ended"
        for each in (name, forgotten):
            paging.kubectl.delete("spl", each)
        assert paging.events("resolve", name, "InvalidSpec")
    Topics(bootstrap).delete(topic)


def moment(*, hours: float) -> str:
    return (datetime.now(UTC) + timedelta(hours=hours)).isoformat()
