"""Sends the pages that the loops recorded, concurrently: a slow receiver delays no loop and no other namespace.

Pages come from the statuses, and the pipeline's own loop records there which receivers have them: no state of this
module has to survive.  The operator's own receivers have their own slots; the others share a few, one for each
namespace.  Those whose receivers do not answer share one slot.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from fencepost_operator.api import ObjectKey, PageSent, Reason
from fencepost_operator.backoff import jittered
from fencepost_operator.errors import NotLeading, PortError
from fencepost_operator.paging.delivery import Allowance, Answer, Message, Outcome
from fencepost_operator.paging.lanes import Due, Lane, incident_of
from fencepost_operator.paging.messages import BATCH, messages_of
from fencepost_operator.paging.notices import Notice
from fencepost_operator.paging.page import Page, PagingFacts, PagingProblem, Receipt
from fencepost_operator.paging.ports import NothingReserved, PageMetrics, ReceiverSource, ReservedAddresses, Sender
from fencepost_operator.paging.receivers import OPERATORS, Receiver, Receivers
from fencepost_operator.paging.sending_slots import LaneKey, SendingSlots, turns
from fencepost_operator.paging.waiting_since import WaitingSince
from fencepost_operator.ports import SteadyClock
from fencepost_operator.settings import PAGERDUTY_URL

log = logging.getLogger(__name__)

OPERATOR: Final = ""
"""Whose Secret it is: no namespace has this name."""
_TICK: Final = 0.5
"""Seconds between two checks of what is due; a new page is checked at once."""
_SLOW: Final = 5.0
"""Seconds for a process, or one per message if that is more; a namespace's receiver that takes longer is slow."""
_REFRESH: Final = 20.0
"""Seconds between two reads of a Secret while pages exist."""
_IDLE_REFRESH: Final = 300.0
"""Seconds between two reads while none exist: a mistake in a Secret is reported before the Secret is needed."""
_MOST_READS: Final = 8


@dataclass(slots=True)
class _Source:
    """The content of a Secret when it was last read: None before the first answer."""

    found: Receivers | None = None
    read_at: datetime | None = None
    is_busy: bool = False


@dataclass(frozen=True, slots=True)
class _Wait:
    """A page that some receiver lacks, and since when it could have it; with `is_undelivered` no receiver has it."""

    page: Page
    since: datetime
    is_undelivered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PagerConfig:
    """Where tenants' receivers may be, as texts, and where PagerDuty's Events API is.

    With `has_own_secret` the operator is to have receivers of its own: without one that can be used, each page waits.
    """

    allowed_endpoints: tuple[str, ...] = ()
    reserved: tuple[str, ...] = ()
    pagerduty: str = PAGERDUTY_URL
    has_own_secret: bool = False


@dataclass(slots=True, kw_only=True)
class QueuedPager:
    """Implements the Pager port; `run` does the work until it is cancelled."""

    source: ReceiverSource
    sender: Sender
    cluster: ReservedAddresses = field(default_factory=NothingReserved)
    """Addresses that no namespace's receiver may use, beside those that the configuration reserves."""
    metrics: PageMetrics
    clock: SteadyClock
    config: PagerConfig = field(default_factory=PagerConfig)
    may_write: Callable[[], None] = lambda: None
    wake: Callable[[ObjectKey], None] = lambda _key: None
    """Has a pipeline's loop record the receipts."""
    _reported: dict[ObjectKey, tuple[Page, ...]] = field(default_factory=dict)
    _receipts: dict[ObjectKey, list[Receipt]] = field(default_factory=dict)
    _waiting: WaitingSince = field(default_factory=WaitingSince)
    _began_at: datetime | None = None
    _sources: dict[str, _Source] = field(default_factory=lambda: {OPERATOR: _Source()})
    _keys: dict[str, set[ObjectKey]] = field(default_factory=dict)
    _lanes: dict[LaneKey, Lane] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _something: asyncio.Event = field(default_factory=asyncio.Event)

    def facts(self, key: ObjectKey) -> PagingFacts:
        """Return the receivers of a pipeline, and which pages they have.

        The operator should have receivers, so its Secret without any counts as unknown; a namespace may have none.
        """
        own, others = self._sources[OPERATOR].found, self._source(key).found
        if own is not None and not own.receivers and self.config.has_own_secret:
            own = None
        known = None if own is None or others is None else _accepting(key.namespace, own, others)
        problems = list(others.problems) if others is not None else []
        for receiver in others.receivers if others is not None else ():
            lane = self._lanes.get((receiver.id, key.namespace))
            if lane is not None and (trouble := lane.trouble(self.clock.now())):
                problems.append(PagingProblem(reason=Reason.PAGE_FAILED, message=trouble))
        return PagingFacts(
            receivers=None if known is None else tuple(receiver.id for receiver in known),
            critical_only=frozenset(receiver.id for receiver in known or () if not receiver.accepts("warning")),
            receipts=tuple(self._receipts.get(key, ())),
            problems=tuple(problems),
        )

    def set_pages(self, key: ObjectKey, pages: Sequence[Page]) -> None:
        """Replace the pages of a pipeline; all of them are in its status."""
        self._source(key)
        self._keys.setdefault(key.namespace, set()).add(key)
        self._waiting.note(key, pages, self.clock.now())
        if not pages:
            self._reported.pop(key, None)
            self._receipts.pop(key, None)
            return
        self._reported[key] = tuple(pages)
        recorded = {
            (page.reason, page.opened_at): {(sent.receiver, sent.outcome) for sent in page.sent} for page in pages
        }
        self._receipts[key] = [
            receipt
            for receipt in self._receipts.get(key, ())
            if (receipt.sent.receiver, receipt.sent.outcome)
            not in recorded.get((receipt.reason, receipt.opened_at), {(receipt.sent.receiver, receipt.sent.outcome)})
        ]
        self._something.set()

    def forget(self, key: ObjectKey) -> None:
        """Drop the pages of a pipeline that is gone."""
        self._reported.pop(key, None)
        self._receipts.pop(key, None)
        self._waiting.forget(key)
        keys = self._keys.get(key.namespace, set())
        keys.discard(key)
        if not keys:
            self._keys.pop(key.namespace, None)
            self._sources.pop(key.namespace, None)
            for lane in [lane for lane in self._lanes if lane[1] == key.namespace]:
                del self._lanes[lane]

    def oldest_unsent(self) -> float:
        """Return for how many seconds the oldest page waits that a receiver of the operator lacks, 0 for none."""
        now = self.clock.now()
        return max((_seconds(now, wait.since) for wait in self._unsent(own=True)), default=0.0)

    def unsent_by_namespace(self) -> dict[str, float]:
        """Return the same per namespace for the receivers that it names itself, where a page waits."""
        now, found = self.clock.now(), dict[str, float]()
        for wait in self._unsent(own=False):
            namespace = wait.page.key.namespace
            found[namespace] = max(found.get(namespace, 0.0), _seconds(now, wait.since))
        return found

    def undelivered(self) -> float:
        """Return for how many seconds an open page waits that no receiver of the operator has, 0 for none.

        This process has tried for at least as long.
        """
        now = self.clock.now()
        began = self._began_at or now
        found = [wait for wait in self._unsent(own=True) if wait.is_undelivered and wait.page.resolved_at is None]
        return max((_seconds(now, max(began, wait.since)) for wait in found), default=0.0)

    def _unsent(self, *, own: bool) -> Iterator[_Wait]:
        """Yield each page that a receiver lacks; without receivers of the operator, all that they should have."""
        found = self._sources[OPERATOR].found
        lacks_receivers = own and self.config.has_own_secret and not (found is not None and found.receivers)
        for key, pages in self._reported.items():
            lanes = [lane for lane in self._lanes_of(key.namespace) if lane.receiver.is_trusted is own]
            for page in pages:
                since = self._waiting.since(page)
                accepting = [lane for lane in lanes if lane.receiver.accepts(page.severity)]
                late = [
                    lane.due_since(page, since)
                    for lane in accepting
                    if lane.lacks(page, self._delivered(key, lane.receiver))
                ]
                if late:
                    yield _Wait(page, min(late), is_undelivered=len(late) == len(accepting))
                elif lacks_receivers and not _is_known(page):
                    yield _Wait(page, since, is_undelivered=True)

    def receivers(self) -> dict[str, int]:
        """Return how many receivers the operator itself has, by kind."""
        found = self._sources[OPERATOR].found
        kinds = [str(receiver.kind) for receiver in found.receivers] if found is not None else []
        return {kind: kinds.count(kind) for kind in kinds}

    async def run(self) -> None:
        """Read Secrets and send pages, until cancelled."""
        self._began_at = self._began_at or self.clock.now()
        try:
            while True:
                self._something.clear()
                self._read_secrets()
                self._send_pages()
                try:
                    async with asyncio.timeout(_TICK):
                        await self._something.wait()
                except TimeoutError:
                    pass
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # Secrets

    def _source(self, key: ObjectKey) -> _Source:
        return self._sources.setdefault(key.namespace, _Source())

    def _read_secrets(self) -> None:
        now = self.clock.now()
        busy = sum(source.is_busy for source in self._sources.values())
        paging = {key.namespace for key in self._reported}
        for namespace, source in self._sources.items():
            wait = _REFRESH if namespace in paging or (paging and namespace == OPERATOR) else _IDLE_REFRESH
            fresh = source.read_at is not None and now - source.read_at < timedelta(seconds=wait)
            if source.is_busy or fresh or (busy >= _MOST_READS and namespace != OPERATOR):
                continue
            source.is_busy, busy = True, busy + 1
            self._begin(self._read(namespace, source))

    async def _read(self, namespace: str, source: _Source) -> None:
        before = source.found
        try:
            source.found = await self.source.receivers(namespace)
        except PortError as error:
            log.warning(
                "the Secret with receivers of %s cannot be read: %s", namespace or "the operator", error,
                extra={"reason": Reason.PAGE_FAILED, "remedy": error.remedy},
            )  # fmt: skip
        finally:
            source.is_busy, source.read_at = False, self.clock.now()
        if source.found is not None and source.found != before:
            self._changed(namespace, source.found)

    def _changed(self, namespace: str, found: Receivers) -> None:
        """Follow a Secret that changed: mistakes in the operator's own are reported in its log alone."""
        if namespace == OPERATOR:
            for problem in found.problems:
                log.error("%s", problem.message, extra={"reason": problem.reason})
        ids = {receiver.id for receiver in found.receivers}
        for lane_key, lane in list(self._lanes.items()):
            if lane.receiver.namespace == namespace and lane_key[0] not in ids:
                del self._lanes[lane_key]
        for receiver in found.receivers:
            for (identity, _), lane in self._lanes.items():
                if identity == receiver.id and lane.receiver != receiver:
                    lane.correct(receiver)
        for key in self._reported if namespace == OPERATOR else self._keys.get(namespace, ()):
            self.wake(key)
        self._something.set()

    # Pages

    def _lanes_of(self, namespace: str) -> Iterator[Lane]:
        for whose in (OPERATOR, namespace):
            source = self._sources.get(whose)
            for receiver in (
                _accepting(namespace, source.found) if source is not None and source.found is not None else ()
            ):
                yield self._lanes.setdefault((receiver.id, namespace), Lane(receiver, self.clock.monotonic))

    def _send_pages(self) -> None:
        """Start to send what is due and has a slot: urgent pages first, failing receivers last."""
        slots = SendingSlots.of(self._lanes)
        if slots.are_taken():
            return
        now = self.clock.now()
        due = list(self._due(now))
        last = turns(self._lanes)
        due.sort(key=lambda each: (each[0].is_failing, not each[2].is_urgent, *last(each[0], each[1])))
        for lane, namespace, found in due:
            if slots.are_taken():
                return
            if not lane.is_busy and slots.take(lane.receiver, namespace):
                along = [(each, more) for each, _, more in due if _goes_along(each, lane)]
                self._begin(self._send(lane.receiver, _batch([(lane, found), *along], now)))

    def _due(self, now: datetime) -> Iterator[tuple[Lane, str, Due]]:
        """Yield each lane with something to send now."""
        namespaces: dict[str, list[ObjectKey]] = {}
        for key in self._reported:
            namespaces.setdefault(key.namespace, []).append(key)
        for namespace, keys in namespaces.items():
            everything = [page for key in keys for page in self._reported[key]]
            incidents = {incident_of(page) for page in everything}
            for lane in self._lanes_of(namespace):
                lane.forget(incidents)
                delivered = {each for key in keys for each in self._delivered(key, lane.receiver)}
                found = lane.due(everything, delivered, now)
                if found.fresh or found.repeats:
                    yield lane, namespace, found

    async def _send(self, receiver: Receiver, batch: list[tuple[Lane, list[Notice]]]) -> None:
        """Send a batch, and have the loops record the receipts."""
        now = self.clock.now()
        parts = [messages_of(receiver, notices, pagerduty=self.config.pagerduty, now=now) for _, notices in batch]
        try:
            self.may_write()
            messages = [message for part in parts for notice in part for message in notice]
            answers = iter(await self._sent(receiver, messages))
        except NotLeading:
            return
        finally:
            for lane, _ in batch:
                lane.is_busy = False
        took = (self.clock.now() - now).total_seconds()
        for (lane, notices), part in zip(batch, parts, strict=True):
            lane.is_slow = not receiver.is_trusted and took > max(_SLOW, len(messages))
            outcomes = [_worst([next(answers) for _ in notice]) for notice in part]
            # One message may hold all of a lane's notices.
            self._answered(
                lane, receiver, notices, outcomes * len(notices) if len(outcomes) < len(notices) else outcomes
            )
        self._something.set()

    def _answered(self, lane: Lane, receiver: Receiver, notices: list[Notice], answers: list[Answer]) -> None:
        """Note the answers to the messages of one lane; `receiver` is the one that they were sent to."""
        now = self.clock.now()
        for notice, answer in zip(notices, answers, strict=True):
            self.metrics.sent(str(receiver.kind), str(answer.outcome))
            if answer.outcome is not Outcome.DELIVERED and lane.receiver != receiver:
                continue  # it was corrected meanwhile
            for page in notice.pages:
                if lane.answered(page, answer, now):
                    self._note(page, receiver, now)
        if (trouble := lane.trouble(now)) != lane.noticed:
            lane.noticed = trouble
            if trouble and receiver.is_trusted:
                log.error("%s", trouble, extra={"reason": Reason.PAGE_FAILED})

    def _note(self, page: Page, receiver: Receiver, now: datetime) -> None:
        """Keep a receipt until the status records it."""
        known = (incident_of(page), page.wanted) in self._delivered(page.key, receiver)
        if known or page.is_reported_to(receiver.id) or page.key not in self._reported:
            return  # recorded already, as for an alert that is repeated, or the pipeline is gone
        sent = PageSent(receiver=receiver.id, at=now.replace(microsecond=0), outcome=page.wanted)
        receipt = Receipt(reason=page.reason, opened_at=page.opened_at, sent=sent)
        self._receipts.setdefault(page.key, []).append(receipt)
        log.info("%s: sent to %s that %s is %s", page.key, receiver.id, page.reason, page.wanted)
        self.wake(page.key)

    def _delivered(self, key: ObjectKey, receiver: Receiver) -> set[tuple[tuple[str, datetime], str]]:
        keys = {(page.reason, page.opened_at): incident_of(page) for page in self._reported.get(key, ())}
        return {
            (keys[receipt.reason, receipt.opened_at], receipt.sent.outcome)
            for receipt in self._receipts.get(key, ())
            if receipt.sent.receiver == receiver.id and (receipt.reason, receipt.opened_at) in keys
        }

    async def _sent(self, receiver: Receiver, messages: Sequence[Message]) -> Sequence[Answer]:
        """Send messages; to a namespace's receiver only while the reserved addresses are known."""
        try:
            allowance = await self._allowance(receiver)
        except PortError as error:
            log.warning(
                "no receiver of a namespace is paged, because the cluster's own addresses are not known: %s", error,
                extra={"reason": Reason.PAGE_FAILED, "remedy": error.remedy},
            )  # fmt: skip
            return [Answer(outcome=Outcome.FAILED)] * len(messages)
        return await self.sender.send(messages, allowance)

    async def _allowance(self, receiver: Receiver) -> Allowance:
        if receiver.is_trusted:
            return Allowance(trusted=True)
        reserved = (*self.config.reserved, *await self.cluster.addresses())
        return Allowance(trusted=False, entries=self.config.allowed_endpoints, reserved=reserved)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _accepting(namespace: str, *found: Receivers) -> list[Receiver]:
    return [receiver for each in found for receiver in each.receivers if receiver.covers(namespace)]


def _seconds(now: datetime, since: datetime) -> float:
    return max(0.0, (now - since).total_seconds())


def _is_known(page: Page) -> bool:
    """Return whether a receiver of the operator has the current state, as the status records."""
    return any(page.is_reported_to(sent.receiver) for sent in page.sent if sent.receiver.startswith(OPERATORS))


def _goes_along(lane: Lane, first: Lane) -> bool:
    """Return whether a lane's pages go with another one's: those of one receiver of the operator that answers."""
    same = lane.receiver.is_trusted and lane.receiver.id == first.receiver.id
    return same and lane is not first and not (lane.is_busy or lane.failures or first.failures)


def _worst(answers: Sequence[Answer]) -> Answer:
    return next((answer for answer in answers if answer.outcome is not Outcome.DELIVERED), answers[0])


def _batch(due: list[tuple[Lane, Due]], now: datetime) -> list[tuple[Lane, list[Notice]]]:
    """Return what one process sends of some lanes' pages, and mark these lanes as busy."""
    left = BATCH[due[0][0].receiver.kind]
    parts: list[list[Notice]] = [[] for _ in due]
    for part, (lane, found) in zip(parts, due, strict=True):
        part.extend(found.fresh[:left])
        left -= len(part)
        lane.spend(part)
    for part, (_, found) in zip(parts, due, strict=True):
        repeats = [Notice(pages=(page,)) for page in found.repeats[:left]]
        part.extend(repeats)
        left -= len(repeats)
    batch = [(lane, part) for (lane, _), part in zip(due, parts, strict=True) if part]
    for lane, _ in batch:
        lane.is_busy, lane.last_start = True, now
    return batch


async def kept_running(pager: QueuedPager) -> None:
    """Run the pager, and restart it after an unexpected error, so that the operator always has one."""
    while True:
        try:
            await pager.run()
        except asyncio.CancelledError:
            raise
        except Exception:  # any error: paging must continue
            log.exception("the pager failed, and is restarted", extra={"reason": Reason.CRASHED})
            await asyncio.sleep(jittered(1.0))
