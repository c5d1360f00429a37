"""The pager: which receivers get a page, when again, in what order; none waits for another's receiver."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from fencepost_operator.api import ObjectKey, PageSent, PageState
from fencepost_operator.errors import NotLeading, Unreachable
from fencepost_operator.paging.delivery import Allowance, Answer, Message, Outcome
from fencepost_operator.paging.messages import BATCH, REPEAT
from fencepost_operator.paging.page import Page, PagingProblem
from fencepost_operator.paging.receiver_queue import BUDGET, BUDGET_PER_HOUR, BURST, REFUSED_WAIT
from fencepost_operator.paging.receivers import Kind, Receiver, Receivers
from fencepost_operator.runtime.metrics.page_delivery import PrometheusPageMetrics
from fencepost_operator.runtime.pager import PagerConfig, QueuedPager
from unit.operator.scenes import NOW

KEY = ObjectKey("shop", "orders")
DELIVERED = Answer(outcome=Outcome.DELIVERED, status=202)
DOWN = Answer(outcome=Outcome.FAILED, status=503)
WRONG = Answer(outcome=Outcome.REFUSED, status=401)
OWN_SECRET = PagerConfig(has_own_secret=True)
TITLE = "[critical] shop/orders BadSpec"


def receiver(name: str, namespace: str = "", kind: Kind = Kind.APPRISE) -> Receiver:
    whose = "namespace" if namespace else "operator"
    return Receiver(
        id=f"{whose}/{kind}/{name}", kind=kind, namespace=namespace, target=f"http://{name}",
        where="shop/fencepost-pages, key apprise, line 1",
    )  # fmt: skip


OWN, TEAM = receiver("own"), receiver("team", "shop")
AM = receiver("am", kind=Kind.ALERTMANAGER)


def page(reason: str = "BadSpec", key: ObjectKey = KEY, severity: str = "critical") -> Page:
    return Page(
        key=key, dedup_key=f"fencepost/c/{key}/{reason}", reason=reason, severity=severity,
        summary=f"{key} {reason}", opened_at=NOW,
    )  # fmt: skip


def keys_of(namespace: str, count: int) -> list[ObjectKey]:
    return [ObjectKey(namespace, f"p{number:03}") for number in range(count)]


@dataclass
class Scene:
    """A pager, the Secrets that it reads, the process that sends for it, and a clock."""

    secrets: dict[str, Receivers]
    reply: Callable[[Message], Answer] = lambda _message: DELIVERED
    unreadable: bool = False
    unanswered: asyncio.Event | None = None
    """Until when no read of a Secret is answered."""
    reading: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    moment: datetime = NOW
    ahead: timedelta = timedelta()
    """Of the wall clock, after it stepped."""
    hanging: set[str] = field(default_factory=set)
    """URLs whose receiver does not answer."""
    held: asyncio.Event | None = None
    """Until when no receiver answers."""
    messages: list[tuple[str, str]] = field(default_factory=list)
    """URL and title of each."""
    bodies: list[str] = field(default_factory=list)
    allowances: list[Allowance] = field(default_factory=list)
    outcomes: list[tuple[str, str]] = field(default_factory=list)
    woken: list[ObjectKey] = field(default_factory=list)
    pager: QueuedPager = field(init=False)

    def now(self) -> datetime:
        return self.moment + self.ahead

    def monotonic(self) -> float:
        return self.moment.timestamp()

    async def receivers(self, namespace: str) -> Receivers:
        if self.unreadable:
            raise Unreachable("no answer")
        if self.unanswered is not None:
            self.reading.append(namespace)
            await self.unanswered.wait()
            self.reading.remove(namespace)
        self.read.append(namespace)
        return self.secrets.get(namespace, Receivers())

    async def send(self, messages: Sequence[Message], allowance: Allowance) -> Sequence[Answer]:
        self.allowances.append(allowance)
        if messages[0].url in self.hanging:
            await asyncio.sleep(3600)
        if self.held is not None:
            await self.held.wait()
        self.messages += [(message.url, message.title) for message in messages]
        self.bodies += [message.body for message in messages]
        return [self.reply(message) for message in messages]

    def sent(self, kind: str, outcome: str) -> None:
        self.outcomes.append((kind, outcome))

    async def pages(self, *pages: Page, key: ObjectKey = KEY, after: float = 0.0) -> None:
        """Record the pages of a pipeline, then let time pass."""
        self.pager.set_pages(key, pages)
        await self.settle(after)

    def record(self, pages: Sequence[Page]) -> None:
        """Record a page of each of its pipelines; nothing is sent yet."""
        for each in pages:
            self.pager.set_pages(each.key, [each])

    async def settle(self, seconds: float = 0.0) -> None:
        """Let time pass, and everything that is due happen."""
        self.moment += timedelta(seconds=seconds)
        for _ in range(20):
            self.pager._something.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    @property
    def urls(self) -> list[str]:
        return [url for url, _ in self.messages]

    @property
    def problem(self) -> PagingProblem:
        (problem,) = self.pager.facts(KEY).problems
        return problem

    def unsent(self) -> dict[str, float]:
        """Scrape how long pages wait: by namespace, and of the operator's own receivers."""
        registry = CollectorRegistry()
        PrometheusPageMetrics(registry).watch(
            self.pager.oldest_unsent, self.pager.unsent_by_namespace, self.pager.receivers
        )
        return {
            sample.labels.get("namespace", sample.labels["owner"]): sample.value
            for family in registry.collect()
            for sample in family.samples
            if sample.name == "fencepost_pages_oldest_unsent_seconds"
        }


@asynccontextmanager
async def paging(
    *receivers: Receiver, reply: Answer | Callable[[Message], Answer] = DELIVERED, unreadable: bool = False, **more: Any
) -> AsyncIterator[Scene]:
    """Run a pager of these receivers, which give this answer."""
    namespaces = {each.namespace for each in receivers}
    scene = Scene(
        {name: Receivers(receivers=tuple(r for r in receivers if r.namespace == name)) for name in namespaces},
        reply=(lambda _message: reply) if isinstance(reply, Answer) else reply,
        unreadable=unreadable,
    )
    scene.pager = QueuedPager(
        source=scene, sender=scene, metrics=scene, clock=scene, wake=scene.woken.append, **more
    )  # fmt: skip
    task = asyncio.create_task(scene.pager.run())
    await asyncio.sleep(0)
    try:
        yield scene
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_receivers_of_both_secrets_get_a_page_and_the_loop_records_it() -> None:
    config = PagerConfig(allowed_endpoints=("team:443",), reserved=("10.0.0.1",))
    async with paging(OWN, TEAM, config=config) as scene:
        assert scene.pager.facts(KEY).receivers is None, "not known yet"
        await scene.pages(page())
        assert sorted(scene.urls) == ["http://own", "http://team"]
        facts = scene.pager.facts(KEY)
        assert facts.receivers == ("operator/apprise/own", "namespace/apprise/team")
        assert {receipt.sent.receiver for receipt in facts.receipts} == set(facts.receivers)
        assert scene.woken.count(KEY) >= 2
        scene.record([replace(page(), sent=tuple(receipt.sent for receipt in facts.receipts))])
        assert scene.pager.facts(KEY).receipts == ()
        await scene.settle(3600)
        assert len(scene.messages) == 2, "no receiver gets it twice"
    trusted, tenant = sorted(scene.allowances, key=lambda each: not each.trusted)
    assert (trusted.trusted, tenant.trusted) == (True, False)
    assert (tenant.entries, tenant.reserved) == (("team:443",), ("10.0.0.1",))
    assert set(scene.outcomes) == {("apprise", "delivered")}


@dataclass
class FoundAddresses:
    found: Sequence[str] | None

    async def addresses(self) -> Sequence[str]:
        if self.found is None:
            raise Unreachable("no answer")
        return self.found


@pytest.mark.parametrize("found", [("192.168.1.10", "10.1.0.1"), None], ids=["known", "unknown"])
async def test_a_namespaces_receiver_is_contacted_only_when_the_clusters_own_addresses_are_known(
    found: Sequence[str] | None,
) -> None:
    config = PagerConfig(reserved=("10.0.0.1",))
    async with paging(OWN, TEAM, config=config, cluster=FoundAddresses(found)) as scene:
        await scene.pages(page())
    reserved = [each.reserved for each in scene.allowances if not each.trusted]
    assert reserved == ([("10.0.0.1", *found)] if found is not None else [])
    assert ("http://own", TITLE) in scene.messages, "the operator's own may lead anywhere"


KNOWN = PageSent(receiver="operator/apprise/own", at=NOW, outcome=PageState.OPENED)


async def test_a_pass_without_another_page_does_not_begin_a_look_at_all_pipelines() -> None:
    """A thousand pipelines make a hundred passes per second."""
    async with paging(OWN) as scene:
        for pages, begins in (([], False), ([page()], True), ([page()], False), ([], True)):
            scene.pager._something.clear()
            scene.pager.set_pages(KEY, pages)
            assert scene.pager._something.is_set() is begins


async def test_a_new_operator_sends_only_to_receivers_without_a_receipt() -> None:
    async with paging(OWN, receiver("b")) as scene:
        await scene.pages(replace(page(), sent=(KNOWN,)))
    assert scene.urls == ["http://b"]


async def test_the_end_of_an_incident_is_sent_too() -> None:
    async with paging(OWN) as scene:
        await scene.pages(page())
        await scene.pages(replace(page(), resolved_at=NOW))
        outcomes = [receipt.sent.outcome for receipt in scene.pager.facts(KEY).receipts]
        assert outcomes == [PageState.OPENED, PageState.RESOLVED]
        scene.pager.set_pages(KEY, [])
        assert scene.pager.facts(KEY).receipts == ()
    assert [title for _, title in scene.messages] == [TITLE, "shop/orders BadSpec"]


async def test_a_receiver_without_an_answer_is_tried_again_with_backoff() -> None:
    replies = iter([DOWN, DOWN, replace(DOWN, status=429, retry_after=100.0), DELIVERED])
    async with paging(OWN, reply=lambda _m: next(replies)) as scene:
        await scene.pages(page())
        for seconds, sent in [
            (0.0, 1),
            (1.0, 1),  # two seconds, or a fifth less
            (1.5, 2),
            (5.0, 3),
            (99.0, 3),  # the answer said how long
            (1.0, 4),
        ]:
            await scene.settle(seconds)
            assert len(scene.messages) == sent
            assert (scene.pager.oldest_unsent() > 100) == (seconds == 99.0)
        assert scene.pager.oldest_unsent() == 0


def down_but(receiver: Receiver) -> Callable[[Message], Answer]:
    return lambda message: DELIVERED if message.url == receiver.target else DOWN


async def test_unsent_pages_are_counted_by_owner_of_the_receiver() -> None:
    async with paging(OWN, TEAM, reply=down_but(OWN)) as scene:
        scene.record([page(), page(key=ObjectKey("calm", "orders"))])
        await scene.settle(400)
        assert scene.unsent() == {"operator": 0, "shop": 400}, "a namespace without a page that waits has no series"


@pytest.mark.parametrize("state", ["unreadable", "missing", "without a line that can be used"])
async def test_a_page_without_a_usable_receiver_waits(state: str) -> None:
    async with paging(config=OWN_SECRET, unreadable=state == "unreadable") as scene:
        scene.secrets[""] = Receivers(problems=(PagingProblem(reason="ReceiverInvalid", message=state),))
        await scene.pages(page(), after=400)
        assert (scene.unsent(), scene.pager.undelivered()) == ({"operator": 400}, 400)
        scene.secrets[""], scene.unreadable = Receivers(receivers=(OWN,)), False
        await scene.settle(21)
        assert (scene.unsent(), scene.pager.undelivered()) == ({"operator": 0}, 0)


@pytest.mark.parametrize(
    ("receivers", "config", "unreadable", "sent"),
    [
        pytest.param((), PagerConfig(), False, (), id="the operator has no Secret"),
        pytest.param((), OWN_SECRET, True, (KNOWN,), id="its Secret is unreadable, and a receiver knows"),
        pytest.param((replace(OWN, namespaces=("bank",)),), OWN_SECRET, False, (), id="no receiver selects it"),
    ],
)
async def test_a_page_does_not_wait(
    receivers: tuple[Receiver, ...], config: PagerConfig, unreadable: bool, sent: tuple[PageSent, ...]
) -> None:
    async with paging(*receivers, config=config, unreadable=unreadable) as scene:
        await scene.pages(replace(page(), sent=sent), after=600)
        assert (scene.unsent(), scene.pager.undelivered()) == ({"operator": 0}, 0)
        assert scene.pager.facts(KEY).receivers == (None if unreadable else ())


async def test_a_page_that_one_receiver_has_is_heard() -> None:
    async with paging(OWN, receiver("b"), reply=down_but(OWN)) as scene:
        await scene.pages(page())
        await scene.settle(400)
        assert (scene.pager.oldest_unsent(), scene.pager.undelivered()) == (400, 0)
        scene.reply = lambda _m: DOWN
        await scene.pages(page(), page("NotReady"), after=350)
        assert scene.pager.undelivered() == 350


async def test_an_old_page_is_undelivered_only_since_the_operator_started() -> None:
    async with paging(OWN, reply=DOWN) as scene:
        await scene.settle()
        await scene.pages(replace(page(), opened_at=NOW - timedelta(hours=1)), after=60)
        assert (scene.pager.oldest_unsent(), scene.pager.undelivered()) == (3660, 60)


async def test_a_page_that_was_silenced_waits_from_the_end_of_the_silence_on() -> None:
    async with paging(OWN, reply=DOWN) as scene:
        await scene.pages(after=7200)
        for waited in (10, 20):
            await scene.pages(page(), after=10)
            assert scene.pager.oldest_unsent() == waited


async def test_what_a_burst_defers_is_not_late() -> None:
    keys = keys_of("shop", BURST + 120)
    async with paging(TEAM) as scene:
        scene.record([page(f"Reason{key.name}", key) for key in keys])
        for _ in range(40):
            await scene.settle(10)
            assert max(scene.pager.unsent_by_namespace().values(), default=0) <= 10
            if len(scene.messages) == len(keys):
                break
        assert len(scene.messages) == len(keys)
        assert scene.moment - NOW > timedelta(seconds=300)


async def test_a_receiver_that_does_not_answer_is_late_with_each_page_of_a_burst() -> None:
    async with paging(OWN, reply=DOWN) as scene:
        scene.record([page(key=key) for key in keys_of("shop", 2 * BURST)])
        for _ in range(40):
            await scene.settle(10)
        assert scene.pager.oldest_unsent() == 400


async def test_a_page_that_fails_again_and_again_delays_no_other_one() -> None:
    poison = page(key=ObjectKey("evil", "x"))
    async with paging(OWN, reply=lambda message: DOWN if "evil" in message.body else DELIVERED) as scene:
        scene.record([poison])
        for _ in range(20):
            await scene.settle(60)
        assert len(scene.messages) > 8
        await scene.pages(page())
        assert scene.messages[-1] == (OWN.target, TITLE)


async def test_an_outage_of_the_receiver_costs_no_budget() -> None:
    pages = [page(f"Reason{key.name}", key) for key in keys_of("shop", 20)]
    async with paging(OWN, reply=DOWN) as scene:
        scene.record(pages)
        for _ in range(20):
            await scene.settle(150)
        assert len(scene.messages) > 3 * BUDGET
        scene.reply = lambda _m: DELIVERED
        scene.messages.clear()
        await scene.settle(150)
        await scene.settle()
        assert len(scene.messages) == len(pages)


async def test_a_refused_page_names_its_place_and_is_tried_rarely() -> None:
    async with paging(TEAM, reply=WRONG) as scene:
        await scene.pages(page())
        await scene.settle(300)
        assert len(scene.messages) == 1
        assert scene.problem.reason == "PageFailed"
        assert "shop/fencepost-pages, key apprise, line 1, answers with HTTP status 401" in scene.problem.message
        scene.reply = lambda _m: DELIVERED
        await scene.pages(page(), page("NotReady"))
        assert len(scene.messages) == 2, "another page does not wait for the refused one"
        await scene.settle(REFUSED_WAIT * 1.3)
        assert len(scene.messages) == 3
        assert not scene.pager.facts(KEY).problems


PLACED = replace(OWN, where="fencepost-system/pages, key apprise, line 3")


async def test_a_page_that_some_have_is_tried_rarely_under_the_same_key_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The status does not say that the receiver knows: some of its recipients do not."""
    async with paging(PLACED, TEAM, reply=Answer(outcome=Outcome.PARTLY, status=503)) as scene:
        await scene.pages(page())
        await scene.settle(REFUSED_WAIT * 0.7)
        assert len(scene.messages) == 2, "each receiver once"
        assert not scene.pager.facts(KEY).receipts
        said = "does not confirm that all its recipients have them. Give each recipient a line"
        assert said in scene.problem.message
        (logged,) = [record.message for record in caplog.records if record.levelname == "ERROR"]
        assert "fencepost-system/pages, key apprise, line 3" in logged
        assert "a line of its own" in logged
        scene.reply = lambda _m: DELIVERED
        await scene.settle(REFUSED_WAIT)
        assert len(scene.messages) == 4
        assert len(set(scene.bodies)) == 1, "sent again with the same key"
        assert {receipt.sent.outcome for receipt in scene.pager.facts(KEY).receipts} == {"opened"}


async def test_a_receiver_that_takes_nothing_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async with paging(PLACED, TEAM, reply=Answer(outcome=Outcome.FAILED)) as scene:
        await scene.pages(page(), page("NotReady"))
        await scene.settle(10)
        await scene.settle(30)
        assert not scene.pager.facts(KEY).problems, "it may come back"
        await scene.settle(90)
        problem = scene.problem
        assert problem.reason == "PageFailed"
        assert "shop/fencepost-pages, key apprise, line 1, takes no messages" in problem.message
        await scene.settle(150)
        assert scene.problem == problem, "whatever the failures are, the text is the same"
        (logged,) = [record.message for record in caplog.records if "takes no messages" in record.message]
        assert "fencepost-system/pages, key apprise, line 3" in logged
        scene.reply = lambda _m: DELIVERED
        await scene.settle(150)
        assert not scene.pager.facts(KEY).problems


async def test_one_failed_attempt_names_no_receiver_however_long_ago() -> None:
    async with paging(TEAM, reply=DOWN) as scene:
        await scene.pages(page(), page("NotReady"))
        await scene.pages(after=3600)
        assert not scene.pager.facts(KEY).problems


@pytest.mark.parametrize("step", [timedelta(), timedelta(hours=1), timedelta(hours=-1)], ids=["calm", "ahead", "back"])
async def test_a_burst_waits_by_the_monotonic_clock_and_nothing_is_dropped(step: timedelta) -> None:
    async with paging(OWN) as scene:
        scene.record([page(f"Reason{key.name}", key) for key in keys_of("shop", BURST + 15)])
        await scene.settle()
        scene.ahead = step
        for _ in range(10):
            await scene.settle()
        assert len(scene.messages) == BURST
        await scene.settle(30)
        assert len(scene.messages) == BURST + 10
        await scene.settle(60)
        assert len({title for _, title in scene.messages}) == BURST + 15


@pytest.mark.parametrize("kind", [Kind.APPRISE, Kind.PAGERDUTY])
async def test_many_of_a_kind_share_a_message(kind: Kind) -> None:
    keys = keys_of("shop", 400)
    async with paging(receiver("own", kind=kind)) as scene:
        scene.record([page("NotReady", key) for key in keys])
        await scene.settle()
        (body,) = scene.bodies
        assert "p000, p001" in body
        assert "and 380 more" in body
        assert all(scene.pager.facts(key).receipts for key in keys), "each is reported"
        for key in keys:
            sent = tuple(each.sent for each in scene.pager.facts(key).receipts)
            scene.record([replace(page("NotReady", key), sent=sent)])
        await scene.settle(3600)
        assert len(scene.bodies) == 1


async def test_pagerduty_ends_a_shared_incident_with_its_last_page() -> None:
    keys = keys_of("shop", 6)
    async with paging(receiver("own", kind=Kind.PAGERDUTY)) as scene:
        scene.record([page("NotReady", key) for key in keys])
        await scene.settle()
        for number, key in enumerate(keys):
            await scene.pages(replace(page("NotReady", key), resolved_at=scene.moment), key=key, after=5)
            ends = [json.loads(body)["dedup_key"] for body in scene.bodies[1:]]
            own = [f"fencepost/c/{each}/NotReady" for each in keys[: number + 1]]
            assert ends == (own if key != keys[-1] else [*own, "fencepost/c/shop/*/NotReady"])
    assert json.loads(scene.bodies[0])["dedup_key"] == "fencepost/c/shop/*/NotReady"


async def test_a_receiver_gets_the_namespaces_and_severities_that_it_selects() -> None:
    critical = replace(receiver("night"), min_severity="critical")
    bank = replace(receiver("bank"), namespaces=("bank",))
    async with paging(critical, bank, config=OWN_SECRET) as scene:
        await scene.pages(page(), page("FallingBehind", severity="warning"), after=600)
        assert scene.messages == [("http://night", TITLE)]
        facts = scene.pager.facts(KEY)
        assert facts.receivers == (critical.id,)
        assert facts.critical_only == frozenset({critical.id})
        assert scene.pager.oldest_unsent() == 0, "no receiver selects the warning"
        scene.record([page("FallingBehind", ObjectKey("bank", "orders"), "warning")])
        await scene.settle()
        assert scene.urls[1:] == ["http://bank"]


async def test_a_namespace_that_pages_all_day_sends_a_few_hundred_messages() -> None:
    """Without a budget its owner could page the platform's engineers 28,800 times per day."""
    async with paging(OWN) as scene:
        for minute in range(0, 6 * 60, 5):
            evil = [page(f"Reason{key.name}", key) for key in keys_of("evil", 20)]
            scene.record(
                [replace(each, dedup_key=f"{each.dedup_key}/{minute}", opened_at=scene.moment) for each in evil]
            )
            await scene.settle(300)
            if minute == 240:
                await scene.pages(page())
                assert "shop/orders BadSpec" in scene.messages[-1][1], "other namespaces have budgets of their own"
        assert BUDGET <= len(scene.messages) <= BUDGET + 6 * BUDGET_PER_HOUR + 1
        assert scene.pager.oldest_unsent() <= 300, "what the budget defers is not late"


@pytest.mark.parametrize(
    ("namespace", "severity"), [("shop", "warning"), ("noisy", "critical")], ids=["warnings", "of another namespace"]
)
async def test_a_critical_page_waits_behind_no_storm(namespace: str, severity: str) -> None:
    async with paging(OWN) as scene:
        scene.record([page(f"Reason{key.name}", key, severity) for key in keys_of(namespace, 400)])
        await scene.settle(60)
        assert scene.messages
        await scene.pages(page(), after=1)
        assert any("shop/orders BadSpec" in title for _, title in scene.messages)


async def test_a_critical_page_is_in_the_next_message_of_a_receiver_that_is_busy() -> None:
    """What is urgent is in the next message, whoever has waited longer."""
    async with paging(OWN) as scene:
        scene.held = asyncio.Event()
        scene.record([page(f"Reason{key.name}", key, "warning") for key in keys_of("noisy", 40)])
        await scene.settle()
        scene.record([page()])
        scene.held.set()
        await scene.settle()
        first = next(at for at, (_, title) in enumerate(scene.messages) if "shop/orders BadSpec" in title)
        assert first == BATCH[Kind.APPRISE], "the first of the second process"


async def test_a_namespace_that_hangs_delays_neither_others_nor_the_operator() -> None:
    hostile = [receiver(f"hole-{n}", f"evil-{n}") for n in range(50)]
    answering = {OWN.target, TEAM.target}
    reply = lambda message: DELIVERED if message.url in answering else DOWN  # noqa: E731
    async with paging(*hostile, OWN, TEAM, reply=reply) as scene:
        scene.record([page(key=ObjectKey(each.namespace, "x")) for each in hostile])
        for _ in range(60):
            await scene.settle(0.5)
        scene.hanging = {each.target for each in hostile}
        await scene.settle(200)
        scene.messages.clear()
        await scene.pages(page())
        await scene.settle()
    assert {url for url, title in scene.messages if "shop/orders" in title} == answering


async def test_a_namespace_with_many_receivers_has_one_turn_like_the_others() -> None:
    greedy = [receiver(f"{name}-{n}", name) for name in ("greedy-a", "greedy-b") for n in range(16)]
    keys = [ObjectKey(name, "x") for name in ("greedy-a", "greedy-b")]
    async with paging(*greedy, TEAM) as scene:
        await scene.pages(page())
        for key in keys:
            scene.pager.set_pages(key, [])
        await scene.settle(1)
        scene.messages.clear()
        scene.record([page(key=key) for key in keys])
        await scene.pages(page("NotReady"))
    assert scene.urls.index("http://team") < 4


async def test_a_receiver_that_answers_slowly_shares_the_place_of_the_silent() -> None:
    hostile = [receiver(f"tar-{n}", f"evil-{n}") for n in range(6)]
    async with paging(*hostile, TEAM) as scene:
        scene.record([page(key=ObjectKey(each.namespace, "x")) for each in hostile])
        scene.held = asyncio.Event()
        await scene.settle()
        for _ in range(6):
            scene.moment += timedelta(seconds=14)
            answered, scene.held = scene.held, asyncio.Event()
            answered.set()
            await scene.settle()
        assert len(scene.messages) == 6, "each is delivered, and slow"
        scene.held = None
        scene.hanging = {each.target for each in hostile}
        scene.record([page("NotReady", ObjectKey(each.namespace, "x")) for each in hostile])
        await scene.settle(100)
        await scene.pages(page())
    assert scene.urls[-1] == "http://team"


async def test_alertmanager_gets_an_alert_again_before_it_lapses() -> None:
    async with paging(AM) as scene:
        await scene.pages(page(), page("NotReady"))
        assert len(scene.messages) == 1, "one message has both"
        receipts = scene.pager.facts(KEY).receipts
        assert len(receipts) == 2
        await scene.settle(REPEAT.total_seconds())
        assert len(scene.messages) == 2
        assert scene.pager.facts(KEY).receipts == receipts, "a repetition is not recorded"


def incidents(scene: Scene) -> list[list[str]]:
    """Return the incidents' keys of each message to an Alertmanager."""
    return [[alert["labels"]["incident"] for alert in json.loads(body)] for body in scene.bodies]


async def test_repeats_take_nothing_from_new_pages_however_many_are_open() -> None:
    async with paging(AM) as scene:
        scene.record([page(key=key) for key in keys_of("shop", 120)])
        await scene.settle()
        assert [len(each) for each in incidents(scene)] == [50, 50, 20]
        for n in range(20):
            late = page(key=ObjectKey("shop", f"late{n}"))
            before = len(scene.bodies)
            await scene.pages(late, key=late.key, after=30)
            assert any(late.dedup_key in post for post in incidents(scene)[before:]), "each new page is sent at once"
        assert len(scene.bodies) < 20 + 11 * 4, "repeats go together"
        assert len({key for post in incidents(scene) for key in post}) == 140
        assert scene.pager.oldest_unsent() == 0


async def test_a_message_has_repeats_only_where_new_pages_leave_room() -> None:
    open_, new = ([page(key=key) for key in keys_of(name, 30)] for name in ("a", "b"))
    async with paging(AM) as scene:
        scene.record(open_)
        await scene.settle()
        scene.bodies.clear()
        scene.moment += REPEAT
        scene.record(new)
        await scene.settle()
    posts = incidents(scene)
    first = [key for post in posts[:2] for key in post]
    assert {each.dedup_key for each in new} <= set(first[:50]), "another namespace's as well"
    assert {each.dedup_key for each in open_} <= {key for post in posts for key in post}


async def test_a_refused_repeat_waits_for_the_next_turn() -> None:
    async with paging(AM) as scene:
        await scene.pages(page())
        scene.reply = lambda _m: WRONG
        for seconds, sent in [(REPEAT.total_seconds(), 2), (5, 2), (REPEAT.total_seconds(), 3)]:
            await scene.settle(seconds)
            assert len(scene.messages) == sent


async def test_one_receiver_of_many_namespaces_takes_one_place() -> None:
    async with paging(AM) as scene:
        scene.hanging = {"http://am/api/v2/alerts"}
        scene.record([page(key=ObjectKey(namespace, "x")) for namespace in ("a", "b", "c")])
        await scene.settle()
        assert len(scene.allowances) == 1, "three namespaces, one process"
        scene.secrets[""] = Receivers(receivers=(AM, receiver("duty")))
        await scene.settle(21)
    assert len(scene.messages) == 3


async def test_a_receiver_that_is_removed_while_it_waits_for_its_turn_gets_nothing() -> None:
    async with paging(OWN, receiver("b"), receiver("removed")) as scene:
        scene.held = asyncio.Event()
        await scene.pages(page())
        scene.secrets[""] = Receivers(receivers=(OWN, receiver("b")))
        await scene.settle(21)
        scene.held.set()
        await scene.settle()
    assert sorted(scene.urls) == ["http://b", "http://own"]


async def test_a_wall_clock_that_was_ahead_delays_neither_a_retry_nor_a_read() -> None:
    """Found: after a failure at a time two hours ahead, nothing was sent, read or counted as late for as long."""
    async with paging(OWN, reply=DOWN) as scene:
        scene.ahead = timedelta(hours=2)
        await scene.settle(301)
        await scene.pages(page())
        assert len(scene.messages) == 1
        scene.ahead, scene.reply = timedelta(), lambda _m: DELIVERED
        scene.secrets[""] = Receivers(receivers=(OWN, receiver("new")))
        await scene.settle(60)
        assert sorted(scene.urls) == ["http://new", "http://own", "http://own"]


async def test_a_page_is_late_although_the_wall_clock_was_ahead_when_it_came() -> None:
    async with paging(OWN, reply=DOWN) as scene:
        await scene.pages()
        scene.ahead = timedelta(hours=2)
        await scene.pages(page())
        scene.ahead = timedelta()
        await scene.settle(600)
        assert scene.pager.undelivered() == 600


async def test_the_secrets_of_many_namespaces_are_read_a_few_at_a_time() -> None:
    async with paging(OWN) as scene:
        scene.unanswered = asyncio.Event()
        scene.record([page(key=ObjectKey(f"n{number:02}", "x")) for number in range(30)])
        await scene.settle()
        assert len(scene.reading) == 8
        scene.unanswered.set()
        await scene.settle()
    assert not scene.reading
    assert sorted(scene.read)[-30:] == [f"n{number:02}" for number in range(30)]


ACCOUNT = receiver("am", "shop", kind=Kind.ALERTMANAGER)
CORRECTED = Receivers(receivers=(replace(ACCOUNT, options={"token": "new"}),))


@pytest.mark.parametrize("answer", [WRONG, replace(DOWN, retry_after=500.0)])
async def test_a_corrected_account_is_used_at_once(answer: Answer) -> None:
    """The id of a receiver is that of its line, whatever the account is."""
    async with paging(ACCOUNT, reply=answer) as scene:
        await scene.pages(page())
        assert len(scene.messages) == 1
        scene.reply = lambda _m: DELIVERED
        scene.secrets["shop"] = CORRECTED
        await scene.settle(21)
        assert len(scene.messages) == 2
        assert not scene.pager.facts(KEY).problems
        assert not scene.pager.unsent_by_namespace()


async def test_an_answer_to_the_old_account_does_not_delay_the_new_one() -> None:
    replies = iter([WRONG, DELIVERED])
    async with paging(ACCOUNT, reply=lambda _m: next(replies)) as scene:
        scene.held = asyncio.Event()
        await scene.pages(page())
        scene.secrets["shop"] = CORRECTED
        await scene.settle(21)
        scene.held.set()
        await scene.settle()
        assert len(scene.messages) == 2
        assert not scene.pager.facts(KEY).problems


async def test_an_unreadable_secret_is_not_an_empty_one() -> None:
    async with paging(OWN, unreadable=True) as scene:
        await scene.pages(page())
        assert scene.pager.facts(KEY).receivers is None
        scene.unreadable = False
        await scene.settle(30)
        assert len(scene.messages) == 1
        scene.unreadable = True
        await scene.settle(300)
        assert scene.pager.facts(KEY).receivers == ("operator/apprise/own",), "the last answer counts"


async def test_a_corrected_secret_is_noticed_while_something_is_open() -> None:
    problem = PagingProblem(reason="ReceiverInvalid", message="line 1")
    async with paging() as scene:
        scene.secrets["shop"] = Receivers(problems=(problem,))
        await scene.pages(page())
        assert scene.problem == problem
        scene.secrets["shop"] = Receivers(receivers=(TEAM,))
        await scene.settle(21)
        await scene.settle()
        assert scene.urls == ["http://team"]
        assert not scene.pager.facts(KEY).problems


async def test_without_the_lease_nothing_is_sent() -> None:
    def refuse() -> None:
        raise NotLeading("another replica leads")

    async with paging(OWN, may_write=refuse) as scene:
        await scene.pages(page())
    assert not scene.messages


@pytest.mark.parametrize("gone", [True, False])
async def test_pages_of_a_forgotten_pipeline_are_not_sent_again(*, gone: bool) -> None:
    async with paging(OWN, reply=DOWN) as scene:
        await scene.pages(page())
        scene.pager.forget(KEY) if gone else scene.pager.set_pages(KEY, [])
        await scene.settle(3600)
        assert len(scene.messages) == 1
        assert not scene.pager.receivers() or scene.pager.receivers() == {"apprise": 1}
