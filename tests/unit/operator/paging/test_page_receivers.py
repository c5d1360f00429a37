"""What a Secret says of receivers, what is wrong with it, and the messages that each kind gets."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest
from apprise import Apprise

from fencepost_operator.api import ObjectKey
from fencepost_operator.paging.delivery import Answer, Message, Outcome, answer_line, answers
from fencepost_operator.paging.messages import LAPSE, harmless, messages_of
from fencepost_operator.paging.notices import Notice
from fencepost_operator.paging.page import Page
from fencepost_operator.paging.receivers import MOST_LINES, Kind, Receiver, SecretSource, parse_receivers
from fencepost_operator.paging.services import SCHEMAS
from fencepost_operator.settings import PAGERDUTY_URL
from unit.operator.scenes import NOW

SOURCE: Final = SecretSource(namespace="shop", place="shop/fencepost-pages", key="uid-9")
ROUTING_KEY: Final = "0123456789abcdef0123456789ABCDEF"
PAGE: Final = Page(
    key=ObjectKey("shop", "orders"),
    dedup_key="fencepost/cluster-1/shop/orders/BadSpec",
    reason="BadSpec",
    severity="critical",
    summary="shop/orders BadSpec: it cannot work",
    opened_at=NOW,
    details={"Pipeline": "shop/orders", "What happened": "no module <!channel> @everyone"},
    runbook="https://docs.example/BadSpec.md",
)


def receiver(kind: Kind, target: str, **options: str) -> Receiver:
    return Receiver(id=f"namespace/{kind}/1", kind=kind, namespace="shop", target=target, options=options)


def test_each_line_is_a_receiver() -> None:
    data = {
        "apprise": "# who\n\nmailtos://user:pass@mail.example?to=a@b.example\n slack://a/b/c \n",
        "pagerduty": ROUTING_KEY,
        "alertmanager": "http://am.example:9093\nhttps://[2001:db8::1]:9093/prefix",
        "alertmanager-token": "secret-token",
    }
    found = parse_receivers(SOURCE, data)
    assert not found.problems
    assert [each.kind for each in found.receivers] == [
        "apprise",
        "apprise",
        "pagerduty",
        "alertmanager",
        "alertmanager",
    ]
    assert [each.target for each in found.receivers][1] == "slack://a/b/c"
    assert found.receivers[0].where == "shop/fencepost-pages, key apprise, line 3"
    assert found.receivers[3].options == {"token": "secret-token"}
    assert not found.receivers[0].is_trusted


def test_an_id_is_stable_and_reveals_nothing() -> None:
    (one,) = parse_receivers(SOURCE, {"pagerduty": ROUTING_KEY}).receivers
    (again,) = parse_receivers(SOURCE, {"pagerduty": f"\n\n{ROUTING_KEY}"}).receivers
    (other,) = parse_receivers(replace(SOURCE, key="uid-10"), {"pagerduty": ROUTING_KEY}).receivers
    (theirs,) = parse_receivers(replace(SOURCE, namespace="bank"), {"pagerduty": ROUTING_KEY}).receivers
    assert one.id == again.id, "whatever line it is on"
    assert len({one.id, other.id, theirs.id}) == 3, "a guess cannot be checked, not by a Secret of one's own either"
    assert one.id.startswith("namespace/pagerduty/")
    assert ROUTING_KEY not in repr(one)


def test_a_line_may_select_namespaces_and_a_severity() -> None:
    own = replace(SOURCE, namespace="")
    line = f"{ROUTING_KEY} minSeverity=critical namespaceSelector=bank,team-*"
    (found,) = parse_receivers(own, {"pagerduty": line}).receivers
    assert found.target == ROUTING_KEY
    assert [found.covers(name) for name in ("bank", "team-a", "banking", "shop")] == [True, True, False, False]
    assert (found.accepts("critical"), found.accepts("warning")) == (True, False)
    (usual,) = parse_receivers(own, {"pagerduty": ROUTING_KEY}).receivers
    assert (usual.id, usual.covers("shop"), usual.accepts("warning")) == (found.id, True, True)


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("minSeverity=high", "minSeverity"),
        ("namespaceSelector=", "namespaceSelector"),
        ("namespaceSelector=Shop", "namespaceSelector"),
        ("severity=critical", "minSeverity, namespaceSelector"),
    ],
)
def test_an_option_that_is_none_is_named(option: str, why: str) -> None:
    found = parse_receivers(replace(SOURCE, namespace=""), {"pagerduty": f"{ROUTING_KEY} {option}"})
    assert not found.receivers
    assert why in found.problems[0].message
    assert ROUTING_KEY not in found.problems[0].message


def test_a_namespaces_own_receiver_selects_no_namespaces() -> None:
    found = parse_receivers(SOURCE, {"pagerduty": f"{ROUTING_KEY} namespaceSelector=bank"})
    assert "is not one of minSeverity." in found.problems[0].message


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("apprise", "file:///etc/passwd"),
        ("apprise", "syslog://"),
        ("apprise", "dbus://"),
        ("apprise", "gnome://"),
        ("apprise", "macosx://"),
        ("apprise", "windows://"),
        ("apprise", "notify://custom"),
        ("apprise", "rsyslog://10.0.0.1"),
        ("apprise", "include /etc/apprise.yml"),
        ("apprise", "https://example.com/plain"),
        ("apprise", "mailto"),
        ("apprise", "json://host/\x00"),
        ("apprise", "json://" + "x" * 3000),
        ("pagerduty", "too-short"),
        ("pagerduty", ROUTING_KEY + "x"),
        ("alertmanager", "alertmanager:9093"),
        ("alertmanager", "ftp://am.example"),
        ("alertmanager", "http://user:pass@am.example"),
        ("alertmanager", "http://am.example/?x=1"),
        ("alertmanager", "http://am.example:99999"),
        ("alertmanager", "http://"),
    ],
)
def test_a_bad_line_is_named_by_place_and_not_by_content(key: str, line: str) -> None:
    found = parse_receivers(SOURCE, {key: f"\n{line}\n"})
    assert not found.receivers
    (problem,) = found.problems
    assert problem.message.startswith(f"Secret shop/fencepost-pages, key {key}, line 2, ")
    assert len(line) < 10 or line not in problem.message
    assert problem.reason == "ReceiverInvalid"


def test_what_else_is_wrong() -> None:
    data = {
        "pagerduty": "\n".join(f"{n:032d}" for n in range(MOST_LINES + 5)),
        "pager_duty": ROUTING_KEY,
        "alertmanager": "http://am.example",
        "alertmanager-token": "two words",
        "alertmanager-ca": "no certificate",
    }
    found = parse_receivers(SOURCE, data)
    assert len(found.receivers) == MOST_LINES + 1
    assert found.receivers[-1].options == {}, "what is wrong is not used"
    messages_of_problems = " ".join(problem.message for problem in found.problems)
    for part in ("has more than 16 lines", "key pager_duty", "key alertmanager-token", "key alertmanager-ca"):
        assert part in messages_of_problems
    assert not parse_receivers(replace(SOURCE, ignored=frozenset({"heartbeat"})), {"heartbeat": "https://x"}).problems


def message(whom: Receiver, *pages: Page) -> Message:
    (found,) = messages_of(whom, Notice(pages=pages), pagerduty=PAGERDUTY_URL, now=NOW)
    return found


def test_pagerduty_gets_an_event_with_a_key() -> None:
    found = message(receiver(Kind.PAGERDUTY, ROUTING_KEY), PAGE)
    event = json.loads(found.body)
    assert found.url == PAGERDUTY_URL
    assert (event["routing_key"], event["event_action"], event["dedup_key"]) == (ROUTING_KEY, "trigger", PAGE.dedup_key)
    assert event["payload"]["severity"] == "critical"
    assert event["payload"]["custom_details"] == PAGE.details
    over = replace(PAGE, resolved_at=NOW, dedup_key="fencepost/" + "x" * 400)
    found = message(receiver(Kind.PAGERDUTY, ROUTING_KEY), over)
    event = json.loads(found.body)
    assert event["event_action"] == "resolve"
    assert len(event["dedup_key"]) <= 255


def test_alertmanager_gets_alerts_that_lapse() -> None:
    over = replace(PAGE, reason="NotReady", resolved_at=NOW + timedelta(minutes=3))
    am = receiver(Kind.ALERTMANAGER, "http://am.example:9093/", username="u", password="p", ca="PEM")  # noqa: S106 - a test
    found = message(am, PAGE, over)
    first, second = json.loads(found.body)
    assert found.url == "http://am.example:9093/api/v2/alerts"
    assert found.headers["Authorization"] == f"Basic {base64.b64encode(b'u:p').decode()}"
    assert found.ca == "PEM"
    assert first["labels"] == {
        "alertname": "FencepostBadSpec",
        "namespace": "shop",
        "name": "orders",
        "reason": "BadSpec",
        "severity": "critical",
        "incident": PAGE.dedup_key,
    }
    assert first["annotations"]["runbook_url"] == PAGE.runbook
    assert (first["startsAt"], first["endsAt"]) == (NOW.isoformat(), (NOW + LAPSE).isoformat())
    assert second["endsAt"] == (NOW + timedelta(minutes=3)).isoformat()


def test_apprise_gets_text_without_mentions() -> None:
    found = message(receiver(Kind.APPRISE, "slack://a/b/c"), PAGE)
    assert (found.apprise, found.title) == ("failure", "[critical] shop/orders BadSpec: it cannot work")
    assert "@everyone" not in found.body
    assert "<!channel>" not in found.body
    assert PAGE.dedup_key in found.body


@pytest.mark.parametrize(
    "call",
    [
        "@everyone",
        "@Channel",
        "@all",
        "@room",
        "@someone:matrix.example",
        "@**all**",
        "@*team*",
        "<!here>",
        "<@U123>",
        "<#C123>",
        "<users/all>",
        '<at user_id="all">x</at>',
        "<at id=all></at>",
        "</at>",
        "<b>",
    ],
)
def test_no_chats_way_to_call_people_gets_through(call: str) -> None:
    text = harmless(f"no module {call}")
    assert "<" not in text
    assert "@" not in text
    assert harmless("5 messages @ 3 s") == "5 messages @ 3 s"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON\n",
        '[0, "delivered", 200, 0.0]\n[1]\n',
        '[0, "stolen", 1, 2]\n',
        '{"a": 1}\n',
        '[2, "delivered", 200, 0.0]\n',
        '["1", "delivered", 200, 0.0]\n',
        '[0, "delivered", 200, 0.0]\n' * 4 + '[1, "delivered", 200, 0.0]\n',
    ],
)
def test_what_is_not_answered_has_failed(text: str) -> None:
    found = answers(text, 2)
    assert len(found) == 2
    assert found[1] == Answer(outcome=Outcome.FAILED)


def test_answers_are_read_back() -> None:
    read: list[Any] = [Answer(outcome=Outcome.FAILED, status=429, retry_after=7.0), Answer(outcome=Outcome.DELIVERED)]
    lines = [answer_line(0, Answer(outcome=Outcome.PARTLY)), *(answer_line(*each) for each in enumerate(read))]
    assert answers("".join(lines) + "more\n", 2) == read, "the last one counts"


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # of one of its services
def test_apprise_knows_each_service_that_is_allowed() -> None:
    """A name that it does not know would be refused only when a page is due."""
    details = Apprise().details()["schemas"]
    known = {name for one in details for kind in ("protocols", "secure_protocols") for name in one[kind] or ()}
    assert sorted(SCHEMAS - known) == []
