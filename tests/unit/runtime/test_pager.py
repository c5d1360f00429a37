"""The pager: which receivers get a page, when again, in what order; none waits for another's receiver."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry

from fencepost_operator.api import ObjectKey, PageSent, PageState
from fencepost_operator.errors import NotLeading, Unreachable
from fencepost_operator.paging.delivery import Allowance, Answer, Message, Outcome
from fencepost_operator.paging.lanes import BUDGET, BUDGET_PER_HOUR, BURST, REFUSED_WAIT
from fencepost_operator.paging.messages import BATCH, REPEAT
from fencepost_operator.paging.page import Page, PagingProblem
from fencepost_operator.paging.receivers import Kind, Receiver, Receivers
from fencepost_operator.runtime.metrics.page_delivery import PrometheusPageMetrics
from fencepost_operator.runtime.pager import PagerConfig, QueuedPager
from unit.operator.scenes import NOW

DELIVERED = Answer(outcome=Outcome.DELIVERED, status=202)
DOWN = Answer(outcome=Outcome.FAILED, status=503)
WRONG = Answer(outcome=Outcome.REFUSED, status=401)


@dataclass
class World:
    """Secrets, a process that sends, and a clock."""

    moment: datetime = NOW
    ahead: timedelta = timedelta()
    """Of the wall clock, after it stepped."""
    secrets: dict[str, Receivers] = field(default_factory=dict)
    unreadable: bool = False
    reply: Callable[[Message], Answer] = lambda _message: DELIVERED
    hanging: set[str] = field(default_factory=set)
    """URLs whose receiver does not answer."""
    held: asyncio.Event | None = None
    """Until when no receiver answers."""
    sent: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)
    allowances: list[Allowance] = field(default_factory=list)
    outcomes: list[tuple[str, str]] = field(default_factory=list)
    woken: list[ObjectKey] = field(default_factory=list)

    def now(self) -> datetime:
        return self.moment + self.ahead

    def monotonic(self) -> float:
        return self.moment.timestamp()

    async def receivers(self, namespace: str) -> Receivers:
        if self.unreadable:
            raise Unreachable("no answer")
        return self.secrets.get(namespace, Receivers())

    async def send(self, messages: Sequence[Message], allowance: Allowance) -> Sequence[Answer]:
        self.allowances.append(allowance)
        if messages[0].url in self.hanging:
            await asyncio.sleep(3600)
        if self.held is not None:
            await self.held.wait()
        self.sent += [(message.url, message.title) for message in messages]
        self.bodies += [message.body for message in messages]
        return [self.reply(message) for message in messages]

    def count(self, kind: str, outcome: str) -> None:
        self.outcomes.append((kind, outcome))


@dataclass
class Counting:
    world: World

    def sent(self, kind: str, outcome: str) -> None:
        self.world.count(kind, outcome)


def receiver(name: str, namespace: str = "", kind: Kind = Kind.APPRISE) -> Receiver:
    whose = "namespace" if namespace else "operator"
    return Receiver(
        id=f"{whose}/{kind}/{name}", kind=kind, namespace=namespace, target=f"http://{name}",
        where="shop/fencepost-pages, key apprise, line 1",
    )  # fmt: skip


def page(reason: str = "BadSpec", key: ObjectKey = ObjectKey("shop", "orders")) -> Page:  # noqa: B008 - frozen
    return Page(
        key=key, dedup_key=f"fencepost/c/{key}/{reason}", reason=reason, severity="critical",
        summary=f"{key} {reason}", opened_at=NOW,
    )  # fmt: skip


@asynccontextmanager
async def running(world: World, **more: object) -> AsyncIterator[QueuedPager]:
    pager = QueuedPager(
        source=world, sender=world, metrics=Counting(world), clock=world, wake=world.woken.append, **more,  # type: ignore[arg-type]
    )  # fmt: skip
    task = asyncio.create_task(pager.run())
    await asyncio.sleep(0)
    try:
        yield pager
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def settle(pager: QueuedPager, world: World, *, seconds: float = 0.0) -> None:
    """Let time pass, and everything that is due happen."""
    world.moment += timedelta(seconds=seconds)
    for _ in range(20):
        pager._something.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


KEY = ObjectKey("shop", "orders")


async def test_receivers_of_both_secrets_get_a_page_and_the_loop_records_it() -> None:
    world = World(
        secrets={"": Receivers(receivers=(receiver("own"),)), "shop": Receivers(receivers=(receiver("team", "shop"),))}
    )
    async with running(world, config=PagerConfig(allowed_endpoints=("team:443",), reserved=("10.0.0.1",))) as pager:
        assert pager.facts(KEY).receivers is None, "not known yet"
        pager.set_pages(KEY, [page()])
        await settle(pager, world)
        assert sorted(url for url, _ in world.sent) == ["http://own", "http://team"]
        facts = pager.facts(KEY)
        assert facts.receivers == ("operator/apprise/own", "namespace/apprise/team")
        assert {receipt.sent.receiver for receipt in facts.receipts} == set(facts.receivers)
        assert world.woken.count(KEY) >= 2
        recorded = replace(page(), sent=tuple(receipt.sent for receipt in facts.receipts))
        pager.set_pages(KEY, [recorded])
        assert pager.facts(KEY).receipts == ()
        await settle(pager, world, seconds=3600)
        assert len(world.sent) == 2, "no receiver gets it twice"
    trusted, tenant = sorted(world.allowances, key=lambda each: not each.trusted)
    assert (trusted.trusted, tenant.trusted) == (True, False)
    assert (tenant.entries, tenant.reserved) == (("team:443",), ("10.0.0.1",))
    assert set(world.outcomes) == {("apprise", "delivered")}


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
    world = World(
        secrets={"": Receivers(receivers=(receiver("own"),)), "shop": Receivers(receivers=(receiver("team", "shop"),))}
    )
    config = PagerConfig(reserved=("10.0.0.1",))
    async with running(world, config=config, cluster=FoundAddresses(found)) as pager:
        pager.set_pages(KEY, [page()])
        await settle(pager, world)
    reserved = [each.reserved for each in world.allowances if not each.trusted]
    assert reserved == ([("10.0.0.1", *found)] if found is not None else [])
    assert ("http://own", "[critical] shop/orders BadSpec") in world.sent, "the operator's own may lead anywhere"


async def test_a_new_operator_sends_only_to_receivers_without_a_receipt() -> None:
    world = World(secrets={"": Receivers(receivers=(receiver("a"), receiver("b")))})
    known = PageSent(receiver="operator/apprise/a", at=NOW, outcome=PageState.OPENED)
    async with running(world) as pager:
        pager.set_pages(KEY, [replace(page(), sent=(known,))])
        await settle(pager, world)
    assert [url for url, _ in world.sent] == ["http://b"]


async def test_the_end_of_an_incident_is_sent_too() -> None:
    world = World(secrets={"": Receivers(receivers=(receiver("a"),))})
    async with running(world) as pager:
        pager.set_pages(KEY, [page()])
        await settle(pager, world)
        over = replace(page(), resolved_at=NOW)
        pager.set_pages(KEY, [over])
        await settle(pager, world)
        assert [receipt.sent.outcome for receipt in pager.facts(KEY).receipts] == [PageState.OPENED, PageState.RESOLVED]
        pager.set_pages(KEY, [])
        assert pager.facts(KEY).receipts == ()
    assert [title for _, title in world.sent] == ["[critical] shop/orders BadSpec", "shop/orders BadSpec"]


async def test_a_receiver_without_an_answer_is_tried_again_with_backoff() -> None:
    replies = [DOWN, DOWN, replace(DOWN, status=429, retry_after=100.0), DELIVERED]
    world = World(secrets={"": Receivers(receivers=(receiver("a"),))}, reply=lambda _m: replies[len(world.sent) - 1])
    async with running(world) as pager:
        pager.set_pages(KEY, [page()])
        await settle(pager, world)
        assert len(world.sent) == 1
        await settle(pager, world, seconds=1.0)
        assert len(world.sent) == 1, "two seconds, or a fifth less"
        await settle(pager, world, seconds=1.5)
        assert len(world.sent) == 2
        await settle(pager, world, seconds=5.0)
        assert len(world.sent) == 3
        await settle(pager, world, seconds=99.0)
        assert len(world.sent) == 3, "the answer said how long"
        assert pager.oldest_unsent() > 100
        await settle(pager, world, seconds=1.0)
        assert len(world.sent) == 4
        assert pager.oldest_unsent() == 0


async def test_unsent_pages_are_counted_by_owner_of_the_receiver() -> None:
    world = World(
        secrets={"": Receivers(receivers=(receiver("own"),)), "shop": Receivers(receivers=(receiver("team", "shop"),))},
        reply=lambda message: DELIVERED if message.url == "http://own" else DOWN,
    )
    async with running(world) as pager:
        pager.set_pages(KEY, [page()])
        pager.set_pages(ObjectKey("calm", "orders"), [page(key=ObjectKey("calm", "orders"))])
        await settle(pager, world, seconds=400)
        assert unsent(pager) == {"operator": 0, "shop": 400}, "a namespace without a page that waits has no series"


def unsent(pager: QueuedPager) -> dict[str, float]:
    """Scrape how long pages wait: by namespace, and of the operator's own receivers."""
    registry = CollectorRegistry()
    PrometheusPageMetrics(registry).watch(pager.oldest_unsent, pager.unsent_by_namespace, pager.receivers)
    samples = [sample for family in registry.collect() for sample in family.samples]
    return {
        sample.labels.get("namespace", sample.labels["owner"]): sample.value
        for sample in samples
        if sample.name == "fencepost_pages_oldest_unsent_seconds"
    }


@pytest.mark.parametrize("state", ["unreadable", "missing", "without a line that can be used"])
async def test_a_page_without_a_usable_receiver_waits(state: str) -> None:
    broken = Receivers(problems=(PagingProblem(reason="ReceiverInvalid", message=state),))
    world = World(secrets={"": broken}, unreadable=state == "unreadable")
    async with running(world, config=PagerConfig(has_own_secret=True)) as pager:
        pager.set_pages(KEY, [page()])
        await settle(pager, world, seconds=400)
        assert unsent(pager) == {"operator": 400}
        assert pager.undelivered() == 400
        world.secrets[""], world.unreadable = Receivers(receivers=(receiver("own"),)), False
        await settle(pager, world, seconds=21)
        assert unsent(pager) == {"operator": 0}
        assert pager.undelivered() == 0


async def test_without_a_secret_of_the_operator_no_page_waits_for_it() -> None:
    world = World()
    async with running(world) as pager:
        pager.set_pages(KEY, [page()])
        await settle(pager, world, seconds=400)
        assert unsent(pager) == {"operator": 0}
        assert pager.undelivered() == 0


async def test_a_page_with_a_receipt_does_not_wait_for_an_unreadable_secret() -> None:
    known = PageSent(receiver="operator/apprise/a", at=NOW, outcome=PageState.OPENED)
    world = World(unreadable=True)
    async with running(world, config=PagerConfig(has_own_secret=True)) as pager:
        pager.set_pages(KEY, [replace(page(), sent=(known,))])
        await settle(pager, world, seconds=400)
        assert unsent(pager) == {"operator": 0}


async def test_a_page_that_one_receiver_has_is_heard() -> None:
    world = World(
        secrets={"": Receivers(receivers=(receiver("a"), receiver("b")))},
        reply=lambda message: DELIVERED if message.url == "http://a" else DOWN,
    )
    async with running(world) as pager:
        pager.set_pages(KEY, [page()])
        await settle(pager, world)
        await settle(pager, world, seconds=400)
        assert (pager.oldest_unsent(), pager.undelivered()) == (400, 0)
        world.reply = lambda _m: DOWN
        pager.set_pages(KEY, [page(), page("NotReady")])
        await settle(pager, world, seconds=350)
        assert pager.undelivered() == 350


async def test_an_old_page_is_undelivered_only_since_the_operator_started() -> None:
    world = World(secrets={"": Receivers(receivers=(receiver("a"),))}, reply=lambda _m: DOWN)
    async with running(world) as pager:
        await settle(pager, world)
        pager.set_pages(KEY, [replace(page(), opened_at=NOW - timedelta(hours=1))])
        await settle(pager, world, seconds=60)
        assert (pager.oldest_unsent(), pager.undelivered()) == (3660, 60)


async def test_a_page_that_was_silenced_waits_from_the_end_of_the_silence_on() -> None:
    world = World(secrets={"": Receivers(receivers=(receiver("a"),))}, reply=lambda _m: DOWN)
    async with running(world) as pager:
        pager.set_pages(KEY, [])
        await settle(pager, world, seconds=7200)
        pager.set_pages(KEY, [page()])
        await settle(pager, world, seconds=10)
        assert pager.oldest_unsent() == 10
        pager.set_pages(KEY, [page()])
        await settle(pager, world, seconds=10)
        assert pager.oldest_unsent() == 20


async def test_what_a_burst_defers_is_not_late() -> None:
    world = World(secrets={"shop": Receivers(receivers=(receiver("a", "shop"),))})
    keys = [ObjectKey("shop", f"p{n}") for n in range(BURST + 120)]
    async with running(world) as pager:
        for key in keys:
            pager.set_pages(key, [page(f"Reason{key.name}", key)])
        for _ in range(40):
            await settle(pager, world, seconds=10)
            assert max(pager.unsent_by_namespace().values(), default=0) <= 10
            if len(world.sent) == len(keys):
                break
        assert len(world.sent) == len(keys)
        assert world.moment - NOW > timedelta(seconds=300)


async def test_a_receiver_that_does_not_answer_is_late_with_each_page_of_a_burst() -> None:
    world = World(secrets={"": Receivers(receivers=(receiver("a"),))}, reply=lambda _m: DOWN)
    async with running(world) as pager:
        for n in range(2 * BURST):
            pager.set_pages(ObjectKey("shop", f"p{n}"), [page(key=ObjectKey("shop", f"p{n}"))])
        for _ in range(40):
            await settle(pager, world, seconds=10)
        assert pager.oldest_unsent() == 400


async def test_a_refused_page_names_its_place_and_is_tried_rarely() -> None:
    world = World(secrets={"shop": Receivers(receivers=(receiver("a", "shop"),))}, reply=lambda _m: WRONG)
    async with running(world) as pager:
        pager.set_pages(KEY, [page()])
        await settle(pager, world)
        await settle(pager, world, seconds=300)
        assert len(world.sent) == 1
        (problem,) = pager.facts(KEY).problems
        assert problem.reason == "PageFailed"
        assert "shop/fencepost-pages, key apprise, line 1, answers with HTTP status 401" in problem.message
        world.reply = lambda _m: DELIVERED
        pager.set_pages(KEY, [page(), page("NotReady")])
        await settle(pager, world)
        assert len(world.sent) == 2, "another page does not wait for the refused one"
        await settle(pager, world, seconds=REFUSED_WAIT * 1.3)
        assert len(world.sent) == 3
        assert not pager.facts(KEY).problems


async def test_a_page_that_some_have_is_tried_rarely_under_the_same_key_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The status does not say that the receiver knows: some of its recipients do not."""
    own = replace(receiver("own"), where="fencepost-system/pages, key apprise, line 3")
    secrets = {"": Receivers(receivers=(own,)), "shop": Receivers(receivers=(receiver("a", "shop"),))}
    world = World(secrets=secrets, reply=lambda _m: Answer(outcome=Outcome.PARTLY, status=503))
    async with running(world) as pager:
        pager.set_pages(KEY, [page()])
        await settle(pager, world)
        await settle(pager, world, seconds=REFUSED_WAIT * 0.7)
        assert len(world.sent) == 2, "each receiver once"
        assert not pager.facts(KEY).receipts
        (problem,) = pager.facts(KEY).problems
        assert "does not confirm that all its recipients have them. Give each recipient a line" in problem.message
        (logged,) = [record.message for record in caplog.records if record.levelname == "ERROR"]
        assert "fencepost-system/pages, key apprise, line 3" in logged
        assert "a line of its own" in logged
        world.reply = lambda _m: DELIVERED
        await settle(pager, world, seconds=REFUSED_WAIT)
        assert len(world.sent) == 4
        assert len(set(world.bodies)) == 1, "sent again with the same key"
        assert {receipt.sent.outcome for receipt in pager.facts(KEY).receipts} == {"opened"}


async def test_a_receiver_that_takes_nothing_is_named(caplog: pytest.LogCaptureFixture) -> None:
    own = replace(receiver("own"), where="fencepost-system/pages, key apprise, line 3")
    world = World(
        secrets={"": Receivers(receivers=(own,)), "shop": Receivers(receivers=(receiver("a", "shop"),))},
        reply=lambda _m: Answer(outcome=Outcome.FAILED),
    )
    async with running(world) as pager:
        pager.set_pages(KEY, [page(), page("NotReady")])
        await settle(pager, world)
        await settle(pager, world, seconds=10)
        await settle(pager, world, seconds=30)
        assert not pager.facts(KEY).problems, "it may come back"
        await settle(pager, world, seconds=90)
        (problem,) = pager.facts(KEY).problems
        assert problem.reason == "PageFailed"
        assert "shop/fencepost-pages, key apprise, line 1, takes no messages" in problem.message
        await settle(pager, world, seconds=150)
        assert pager.facts(KEY).problems == (problem,), "whatever the failures are, the text is the same"
        logged = [record.message for record in caplog.records if "takes no messages" in record.message]
        assert len(logged) == 1
        assert "fencepost-system/pages, key apprise, line 3" in logged[0]
        world.reply = lambda _m: DELIVERED
        await settle(pager, world, seconds=150)
        assert not pager.facts(KEY).problems


async def test_one_failed_attempt_names_no_receiver_however_long_ago() -> None:
    world = World(secrets={"shop": Receivers(receivers=(receiver("a", "shop"),))}, reply=lambda _m: DOWN)
    async with running(world) as pager:
        pager.set_pages(KEY, [page(), page("NotReady")])
        await settle(pager, world)
        pager.set_pages(KEY, [])
        await settle(pager, world, seconds=3600)
        assert not pager.facts(KEY).problems


async def test_a_burst_waits_and_nothing_is_dropped() -> None:
    world = World(secrets={"": Receivers(receivers=(receiver("a"),))})
    pages = {ObjectKey("shop", f"p{n}"): n for n in range(BURST + 15)}
    async with running(world) as pager:
        for key in pages:
            pager.set_pages(key, [page(f"Reason{key.name}", key)])
        for _ in range(10):
            await settle(pager, world)
        assert len(world.sent) == BURST
        await settle(pager, world, seconds=30)
        assert len(world.sent) == BURST + 10
        await settle(pager, world, seconds=60)
        assert len({title for _, title in world.sent}) == BURST + 15


@pytest.mark.parametrize("step", [timedelta(hours=1), timedelta(hours=-1)])
async def test_a_step_of_the_wall_clock_neither_fills_a_bucket_nor_holds_it_up(step: timedelta) -> None:
    world = World(secrets={"": Receivers(receivers=(receiver("a"),))})
    async with running(world) as pager:
        for key in (ObjectKey("shop", f"p{n}") for n in range(BURST + 15)):
            pager.set_pages(key, [page(f"Reason{key.name}", key)])
        await settle(pager, world)
        world.ahead = step
        for _ in range(10):
            await settle(pager, world)
        assert len(world.sent) == BURST
        await settle(pager, world, seconds=30)
        assert len(world.sent) == BURST + 10


def storm(namespace: str, pages: int, severity: str = "warning") -> dict[ObjectKey, Page]:
    keys = [ObjectKey(namespace, f"p{number:03}") for number in range(pages)]
    return {key: replace(page(f"Reason{key.name}", key), severity=severity) for key in keys}


@pytest.mark.parametrize("kind", [Kind.APPRISE, Kind.PAGERDUTY])
async def test_many_of_a_kind_share_a_message(kind: Kind) -> None:
    world = World(secrets={"": Receivers(receivers=(receiver("own", kind=kind),))})
    keys = list(storm("shop", 400))
    async with running(world) as pager:
        for key in keys:
            pager.set_pages(key, [page("NotReady", key)])
        await settle(pager, world)
        (body,) = world.bodies
        assert "p000, p001" in body
        assert "and 380 more" in body
        assert all(pager.facts(key).receipts for key in keys), "each is reported"
        for key in keys:
            receipts = pager.facts(key).receipts
            pager.set_pages(key, [replace(page("NotReady", key), sent=tuple(each.sent for each in receipts))])
        await settle(pager, world, seconds=3600)
        assert len(world.bodies) == 1


async def test_pagerduty_ends_a_shared_incident_with_its_last_page() -> None:
    world = World(secrets={"": Receivers(receivers=(receiver("own", kind=Kind.PAGERDUTY),))})
    keys = list(storm("shop", 6))
    async with running(world) as pager:
        for key in keys:
            pager.set_pages(key, [page("NotReady", key)])
        await settle(pager, world)
        for number, key in enumerate(keys):
            pager.set_pages(key, [replace(page("NotReady", key), resolved_at=world.moment)])
            await settle(pager, world, seconds=5)
            ends = [json.loads(body)["dedup_key"] for body in world.bodies[1:]]
            own = [f"fencepost/c/{each}/NotReady" for each in keys[: number + 1]]
            assert ends == (own if key != keys[-1] else [*own, "fencepost/c/shop/*/NotReady"])
    assert json.loads(world.bodies[0])["dedup_key"] == "fencepost/c/shop/*/NotReady"


async def test_a_receiver_gets_the_namespaces_and_severities_that_it_selects() -> None:
    critical = replace(receiver("night"), min_severity="critical")
    bank = replace(receiver("bank"), namespaces=("bank",))
    world = World(secrets={"": Receivers(receivers=(critical, bank))})
    warning = replace(page("FallingBehind"), severity="warning")
    async with running(world, config=PagerConfig(has_own_secret=True)) as pager:
        pager.set_pages(KEY, [page(), warning])
        await settle(pager, world, seconds=600)
        assert world.sent == [("http://night", "[critical] shop/orders BadSpec")]
        facts = pager.facts(KEY)
        assert facts.receivers == (critical.id,)
        assert facts.critical_only == frozenset({critical.id})
        assert pager.oldest_unsent() == 0, "no receiver selects the warning"
        other = ObjectKey("bank", "orders")
        pager.set_pages(other, [replace(warning, key=other)])
        await settle(pager, world)
        assert [url for url, _ in world.sent[1:]] == ["http://bank"]


async def test_a_page_that_no_receiver_selects_does_not_wait() -> None:
    world = World(secrets={"": Receivers(receivers=(replace(receiver("bank"), namespaces=("bank",)),))})
    async with running(world, config=PagerConfig(has_own_secret=True)) as pager:
        pager.set_pages(KEY, [page()])
        await settle(pager, world, seconds=600)
        assert (pager.facts(KEY).receivers, pager.oldest_unsent(), pager.undelivered()) == ((), 0, 0)


async def test_a_namespace_that_pages_all_day_sends_a_few_hundred_messages() -> None:
    """Without a budget its owner could page the platform's engineers 28,800 times per day."""
    world = World(secrets={"": Receivers(receivers=(receiver("own"),))})
    async with running(world) as pager:
        for minute in range(0, 6 * 60, 5):
            keys = [ObjectKey("evil", f"p{n}") for n in range(20)]
            for key in keys:
                opened = replace(page(f"Reason{key.name}", key), opened_at=world.moment)
                pager.set_pages(key, [opened])
            await settle(pager, world, seconds=300)
            if minute == 240:
                pager.set_pages(KEY, [page()])
                await settle(pager, world)
                assert "shop/orders BadSpec" in world.sent[-1][1], "other namespaces have budgets of their own"
        assert BUDGET <= len(world.sent) <= BUDGET + 6 * BUDGET_PER_HOUR + 1
        assert pager.oldest_unsent() <= 300, "what the budget defers is not late"


async def test_a_critical_page_waits_behind_no_storm_of_warnings() -> None:
    world = World(secrets={"": Receivers(receivers=(receiver("own"),))})
    async with running(world) as pager:
        for key, each in storm("shop", 400).items():
            pager.set_pages(key, [each])
        await settle(pager, world, seconds=60)
        assert world.sent
        pager.set_pages(KEY, [page()])
        await settle(pager, world, seconds=1)
        assert "shop/orders BadSpec" in world.sent[-1][1] or "shop/orders BadSpec" in world.sent[-2][1]


async def test_a_critical_page_waits_behind_no_storm_of_another_namespace() -> None:
    """Both go by one receiver: what is urgent is in the next message, whoever has waited longer."""
    world = World(secrets={"": Receivers(receivers=(receiver("own"),))})
    world.held = asyncio.Event()
    async with running(world) as pager:
        for key, each in storm("noisy", 40).items():
            pager.set_pages(key, [each])
        await settle(pager, world)
        pager.set_pages(KEY, [page()])
        world.held.set()
        await settle(pager, world)
        own = [title for _, title in world.sent]
        first = next(at for at, title in enumerate(own) if "shop/orders BadSpec" in title)
        assert first == BATCH[Kind.APPRISE], "the first of the second process"


async def test_a_namespace_with_many_critical_pages_keeps_no_tokens_from_the_next() -> None:
    world = World(secrets={"": Receivers(receivers=(receiver("own"),))})
    async with running(world) as pager:
        for key, each in storm("noisy", 400, "critical").items():
            pager.set_pages(key, [each])
        await settle(pager, world, seconds=60)
        pager.set_pages(KEY, [page()])
        await settle(pager, world)
        assert any("shop/orders BadSpec" in title for _, title in world.sent)


async def test_a_namespace_that_hangs_delays_neither_others_nor_the_operator() -> None:
    hostile = {f"evil-{n}": Receivers(receivers=(receiver(f"hole-{n}", f"evil-{n}"),)) for n in range(50)}
    world = World(
        secrets={
            **hostile,
            "": Receivers(receivers=(receiver("own"),)),
            "shop": Receivers(receivers=(receiver("team", "shop"),)),
        }
    )
    world.reply = lambda message: DELIVERED if message.url in {"http://own", "http://team"} else DOWN
    async with running(world) as pager:
        for namespace in hostile:
            key = ObjectKey(namespace, "x")
            pager.set_pages(key, [page(key=key)])
        for _ in range(60):
            await settle(pager, world, seconds=0.5)
        world.hanging = {f"http://hole-{n}" for n in range(50)}
        await settle(pager, world, seconds=200)
        world.sent.clear()
        pager.set_pages(KEY, [page()])
        await settle(pager, world)
        await settle(pager, world)
    assert {url for url, title in world.sent if "shop/orders" in title} == {"http://own", "http://team"}


async def test_a_namespace_with_many_receivers_has_one_turn_like_the_others() -> None:
    greedy = {name: tuple(receiver(f"{name}-{n}", name) for n in range(16)) for name in ("greedy-a", "greedy-b")}
    secrets = greedy | {"shop": (receiver("team", "shop"),)}
    world = World(secrets={name: Receivers(receivers=each) for name, each in secrets.items()})
    async with running(world) as pager:
        pager.set_pages(KEY, [page()])
        await settle(pager, world)
        for name in greedy:
            pager.set_pages(ObjectKey(name, "x"), [])
        await settle(pager, world, seconds=1)
        world.sent.clear()
        for name in greedy:
            pager.set_pages(ObjectKey(name, "x"), [page(key=ObjectKey(name, "x"))])
        pager.set_pages(KEY, [page("NotReady")])
        await settle(pager, world)
    assert [url for url, _ in world.sent].index("http://team") < 4


async def test_a_receiver_that_answers_slowly_shares_the_place_of_the_silent() -> None:
    hostile = {f"evil-{n}": receiver(f"tar-{n}", f"evil-{n}") for n in range(6)}
    team = receiver("team", "shop")
    world = World(
        secrets={name: Receivers(receivers=(each,)) for name, each in hostile.items()}
        | {"shop": Receivers(receivers=(team,))}
    )
    async with running(world) as pager:
        for name in hostile:
            pager.set_pages(ObjectKey(name, "x"), [page(key=ObjectKey(name, "x"))])
        world.held = asyncio.Event()
        await settle(pager, world)
        for _ in range(6):
            world.moment += timedelta(seconds=14)
            answered, world.held = world.held, asyncio.Event()
            answered.set()
            await settle(pager, world)
        assert len(world.sent) == 6, "each is delivered, and slow"
        world.held = None
        world.hanging = {each.target for each in hostile.values()}
        for name in hostile:
            pager.set_pages(ObjectKey(name, "x"), [page("NotReady", ObjectKey(name, "x"))])
        await settle(pager, world, seconds=100)
        pager.set_pages(KEY, [page()])
        await settle(pager, world)
    assert world.sent[-1][0] == "http://team"


async def test_alertmanager_gets_an_alert_again_before_it_lapses() -> None:
    world = World(secrets={"": Receivers(receivers=(receiver("am", kind=Kind.ALERTMANAGER),))})
    pages = [page(), page("NotReady")]
    async with running(world) as pager:
        pager.set_pages(KEY, pages)
        await settle(pager, world)
        assert len(world.sent) == 1, "one message has both"
        receipts = pager.facts(KEY).receipts
        assert len(receipts) == 2
        await settle(pager, world, seconds=REPEAT.total_seconds())
        assert len(world.sent) == 2
        assert pager.facts(KEY).receipts == receipts, "a repetition is not recorded"


def alerts_of(world: World) -> list[list[str]]:
    """Collect the incidents' keys of each message to an Alertmanager from now on."""
    posts: list[list[str]] = []

    def reply(message: Message) -> Answer:
        posts.append([alert["labels"]["incident"] for alert in json.loads(message.body)])
        return DELIVERED

    world.reply = reply
    return posts


async def test_repeats_take_nothing_from_new_pages_however_many_are_open() -> None:
    world = World(secrets={"": Receivers(receivers=(receiver("am", kind=Kind.ALERTMANAGER),))})
    posts = alerts_of(world)
    async with running(world) as pager:
        for n in range(120):
            key = ObjectKey("shop", f"p{n}")
            pager.set_pages(key, [page(key=key)])
        await settle(pager, world)
        assert [len(each) for each in posts] == [50, 50, 20], "one message spends one token"
        waited = 0
        for n in range(20):
            late = ObjectKey("shop", f"late{n}")
            pager.set_pages(late, [page(key=late)])
            before = len(posts)
            await settle(pager, world, seconds=30)
            waited += all(page(key=late).dedup_key not in post for post in posts[before:])
        assert not waited, "each new page is sent at once"
        assert len(posts) < 20 + 11 * 4, "repeats go together"
        last: dict[str, int] = {key: at for at, post in enumerate(posts) for key in post}
        assert len(last) == 140
        assert pager.oldest_unsent() == 0


async def test_a_message_has_repeats_only_where_new_pages_leave_room() -> None:
    world = World(secrets={"": Receivers(receivers=(receiver("am", kind=Kind.ALERTMANAGER),))})
    posts = alerts_of(world)
    open_, new = ({f"{name}{n}": ObjectKey(name, f"p{n}") for n in range(30)} for name in ("a", "b"))
    async with running(world) as pager:
        for key in open_.values():
            pager.set_pages(key, [page(key=key)])
        await settle(pager, world)
        posts.clear()
        world.moment += REPEAT
        for key in new.values():
            pager.set_pages(key, [page(key=key)])
        await settle(pager, world)
    first = [key for post in posts[:2] for key in post]
    assert {page(key=key).dedup_key for key in new.values()} <= set(first[:50]), "another namespace's as well"
    assert {page(key=key).dedup_key for key in open_.values()} <= {key for post in posts for key in post}


async def test_a_refused_repeat_waits_for_the_next_turn() -> None:
    world = World(secrets={"": Receivers(receivers=(receiver("am", kind=Kind.ALERTMANAGER),))})
    async with running(world) as pager:
        pager.set_pages(KEY, [page()])
        await settle(pager, world)
        world.reply = lambda _m: WRONG
        await settle(pager, world, seconds=REPEAT.total_seconds())
        await settle(pager, world, seconds=5)
        assert len(world.sent) == 2
        await settle(pager, world, seconds=REPEAT.total_seconds())
        assert len(world.sent) == 3


async def test_one_receiver_of_many_namespaces_takes_one_place() -> None:
    slow, fast = receiver("am", kind=Kind.ALERTMANAGER), receiver("duty")
    world = World(secrets={"": Receivers(receivers=(slow,))}, hanging={"http://am/api/v2/alerts"})
    async with running(world) as pager:
        for namespace in ("a", "b", "c"):
            key = ObjectKey(namespace, "x")
            pager.set_pages(key, [page(key=key)])
        await settle(pager, world)
        assert len(world.allowances) == 1, "three namespaces, one process"
        world.secrets[""] = Receivers(receivers=(slow, fast))
        await settle(pager, world, seconds=21)
    assert len(world.sent) == 3


@pytest.mark.parametrize("answer", [WRONG, replace(DOWN, retry_after=500.0)])
async def test_a_corrected_account_is_used_at_once(answer: Answer) -> None:
    """The id of a receiver is that of its line, whatever the account is."""
    account = receiver("am", "shop", kind=Kind.ALERTMANAGER)
    world = World(secrets={"shop": Receivers(receivers=(account,))}, reply=lambda _m: answer)
    async with running(world) as pager:
        pager.set_pages(KEY, [page()])
        await settle(pager, world)
        assert len(world.sent) == 1
        world.reply = lambda _m: DELIVERED
        world.secrets["shop"] = Receivers(receivers=(replace(account, options={"token": "new"}),))
        await settle(pager, world, seconds=21)
        assert len(world.sent) == 2
        assert not pager.facts(KEY).problems
        assert not pager.unsent_by_namespace()


async def test_an_answer_to_the_old_account_does_not_delay_the_new_one() -> None:
    account = receiver("am", "shop", kind=Kind.ALERTMANAGER)
    world = World(secrets={"shop": Receivers(receivers=(account,))}, held=asyncio.Event())
    replies = iter([WRONG, DELIVERED])
    world.reply = lambda _m: next(replies)
    async with running(world) as pager:
        pager.set_pages(KEY, [page()])
        await settle(pager, world)
        world.secrets["shop"] = Receivers(receivers=(replace(account, options={"token": "new"}),))
        await settle(pager, world, seconds=21)
        assert world.held is not None
        world.held.set()
        await settle(pager, world)
        assert len(world.sent) == 2
        assert not pager.facts(KEY).problems


async def test_an_unreadable_secret_is_not_an_empty_one() -> None:
    world = World(secrets={"": Receivers(receivers=(receiver("a"),))}, unreadable=True)
    async with running(world) as pager:
        pager.set_pages(KEY, [page()])
        await settle(pager, world)
        assert pager.facts(KEY).receivers is None
        world.unreadable = False
        await settle(pager, world, seconds=30)
        assert len(world.sent) == 1
        world.unreadable = True
        await settle(pager, world, seconds=300)
        assert pager.facts(KEY).receivers == ("operator/apprise/a",), "the last answer counts"


async def test_a_corrected_secret_is_noticed_while_something_is_open() -> None:
    problem = PagingProblem(reason="ReceiverInvalid", message="line 1")
    world = World(secrets={"shop": Receivers(problems=(problem,))})
    async with running(world) as pager:
        pager.set_pages(KEY, [page()])
        await settle(pager, world)
        assert pager.facts(KEY).problems == (problem,)
        world.secrets["shop"] = Receivers(receivers=(receiver("team", "shop"),))
        await settle(pager, world, seconds=21)
        await settle(pager, world)
        assert [url for url, _ in world.sent] == ["http://team"]
        assert not pager.facts(KEY).problems


async def test_without_the_lease_nothing_is_sent() -> None:
    def refuse() -> None:
        raise NotLeading("another replica leads")

    world = World(secrets={"": Receivers(receivers=(receiver("a"),))})
    async with running(world, may_write=refuse) as pager:
        pager.set_pages(KEY, [page()])
        await settle(pager, world)
    assert not world.sent


@pytest.mark.parametrize("gone", [True, False])
async def test_pages_of_a_forgotten_pipeline_are_not_sent_again(*, gone: bool) -> None:
    world = World(secrets={"": Receivers(receivers=(receiver("a"),))}, reply=lambda _m: DOWN)
    async with running(world) as pager:
        pager.set_pages(KEY, [page()])
        await settle(pager, world)
        pager.forget(KEY) if gone else pager.set_pages(KEY, [])
        await settle(pager, world, seconds=3600)
        assert len(world.sent) == 1
        assert not pager.receivers() or pager.receivers() == {"apprise": 1}
