"""Sends the pages that the loops recorded, concurrently: a slow receiver delays no loop and no other namespace.

Pages come from the statuses, and the pipeline's own loop records there which receivers have them: no state of this
module has to survive.  The operator's own receivers take turns, and so do the namespaces with receivers of theirs.
Those whose receivers do not answer have one turn at a time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from fencepost_operator.api import ObjectKey, Reason
from fencepost_operator.errors import NotLeading, PortError
from fencepost_operator.paging.delivery import Allowance, Answer, Outcome
from fencepost_operator.paging.messages import messages_of
from fencepost_operator.paging.notices import Notice
from fencepost_operator.paging.page import Page, PagingFacts, PagingProblem
from fencepost_operator.paging.pending_pages import PendingPages
from fencepost_operator.paging.ports import PageMetrics, ReceiverSource, ReservedAddresses, Sender
from fencepost_operator.paging.receiver_queue import ReceiverQueue
from fencepost_operator.paging.receivers import OPERATORS, Receiver, Receivers
from fencepost_operator.ports import SteadyClock
from fencepost_operator.settings import PAGERDUTY_URL
from fencepost_operator.turns import Turns

log = logging.getLogger(__name__)

OPERATOR: Final = ""
"""Whose Secret it is: no namespace has this name."""
_TICK: Final = 0.5
"""Seconds between two checks of what is due; a new page is checked at once."""
_AT_ONCE: Final = 2
"""Processes that send to receivers of the operator, and as many to those of namespaces."""
_REFRESH: Final = 20.0
"""Seconds between two reads of a Secret while pages exist."""
_IDLE_REFRESH: Final = 300.0
"""Seconds between two reads while none exist: a mistake in a Secret is reported before the Secret is needed."""
_MOST_READS: Final = 8
"""Secrets of namespaces that are read at a time."""


@dataclass(slots=True)
class _Secret:
    """A Secret as it was last read, and the queues of its receivers."""

    found: Receivers | None = None
    """None before the first answer."""
    queues: dict[str, ReceiverQueue] = field(default_factory=dict)
    read_at: float | None = None
    """By the monotonic clock."""
    is_busy: bool = False


@dataclass(slots=True)
class _Senders:
    """Turns of those who send: a receiver of the operator, or a namespace."""

    all: Turns = field(default_factory=lambda: Turns("pages", limit=_AT_ONCE, per_tenant=1, patience=math.inf))
    failing: Turns = field(default_factory=lambda: Turns("pages", limit=1, patience=math.inf))

    @asynccontextmanager
    async def turn(self, name: str, *, is_failing: bool) -> AsyncIterator[None]:
        """Wait for a turn and keep it for the body."""
        async with AsyncExitStack() as stack:
            if is_failing:
                await stack.enter_async_context(self.failing.turn(name))
            await stack.enter_async_context(self.all.turn(name))
            yield


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
    cluster: ReservedAddresses | None = None
    """Addresses that no namespace's receiver may use, beside those that the configuration reserves."""
    metrics: PageMetrics
    clock: SteadyClock
    config: PagerConfig = field(default_factory=PagerConfig)
    may_write: Callable[[], None] = lambda: None
    wake: Callable[[ObjectKey], None] = lambda _key: None
    """Has a pipeline's loop record the receipts."""
    _pending: dict[str, dict[ObjectKey, PendingPages]] = field(default_factory=dict)
    """By namespace and pipeline."""
    _secrets: dict[str, _Secret] = field(default_factory=lambda: {OPERATOR: _Secret()})
    """By namespace."""
    _own: _Senders = field(default_factory=_Senders)
    _others: _Senders = field(default_factory=_Senders)
    _began_at: float | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _something: asyncio.Event = field(default_factory=asyncio.Event)

    def facts(self, key: ObjectKey) -> PagingFacts:
        """Return the receivers of a pipeline, and which pages they have."""
        own, others = self._secrets[OPERATOR], self._secret(key.namespace)
        problems = list(others.found.problems) if others.found is not None else []
        for queue in others.queues.values():
            if trouble := queue.trouble():
                problems.append(PagingProblem(reason=Reason.PAGE_FAILED, message=trouble))
        receivers = [each.receiver for each in self._queues(key.namespace, own, others)]
        are_known = self._is_known(own) and others.found is not None
        pending = self._pending.get(key.namespace, {}).get(key)
        return PagingFacts(
            receivers=tuple(each.id for each in receivers) if are_known else None,
            critical_only=frozenset(each.id for each in receivers if not each.accepts("warning")),
            receipts=pending.receipts if pending is not None else (),
            problems=tuple(problems),
        )

    def set_pages(self, key: ObjectKey, pages: Sequence[Page]) -> None:
        """Replace the pages of a pipeline; all of them are in its status."""
        self._secret(key.namespace)
        pending = self._pending.setdefault(key.namespace, {}).setdefault(key, PendingPages())
        before = pending.pages
        pending.record(pages, self.clock.now(), self.clock.monotonic())
        if pending.pages != before:  # each look at a pipeline comes here, and what this begins looks at all of them
            self._something.set()

    def forget(self, key: ObjectKey) -> None:
        """Drop the pages of a pipeline that is gone."""
        pipelines = self._pending.get(key.namespace, {})
        pipelines.pop(key, None)
        if not pipelines:
            self._pending.pop(key.namespace, None)
            self._secrets.pop(key.namespace, None)

    def oldest_unsent(self) -> float:
        """Return for how many seconds the oldest page waits that a receiver of the operator lacks, 0 for none."""
        return max(self._ages(OPERATOR), default=0.0)

    def unsent_by_namespace(self) -> dict[str, float]:
        """Return the same per namespace for the receivers that it names itself, where a page waits."""
        return {namespace: max(ages) for namespace in self._pending if (ages := self._ages(namespace))}

    def undelivered(self) -> float:
        """Return for how many seconds an open page waits that no receiver of the operator has, 0 for none.

        This process has tried for at least as long.
        """
        began = self._began_at if self._began_at is not None else self.clock.monotonic()
        lacking = [
            min(since for since in waits if since is not None)
            for page, waits in self._waits(OPERATOR)
            if page.resolved_at is None and waits and None not in waits
        ]
        return max((self._age(max(began, since)) for since in lacking), default=0.0)

    def receivers(self) -> dict[str, int]:
        """Return how many receivers the operator itself has, by kind."""
        kinds = [str(queue.receiver.kind) for queue in self._secrets[OPERATOR].queues.values()]
        return {kind: kinds.count(kind) for kind in kinds}

    async def run(self) -> None:
        """Read Secrets and send pages, until cancelled."""
        self._began_at = self.clock.monotonic() if self._began_at is None else self._began_at
        try:
            while True:
                self._something.clear()
                try:
                    self._read_secrets()
                    self._send_pages()
                except Exception:  # any error: paging must continue
                    log.exception("the pager failed, and tries again", extra={"reason": Reason.CRASHED})
                with suppress(TimeoutError):
                    async with asyncio.timeout(_TICK):
                        await self._something.wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # What waits

    def _waits(self, whose: str) -> Iterator[tuple[Page, list[float | None]]]:
        """Yield each page, and since when each of these receivers that should have it waits; None for one that has it.

        Where the operator's own are not known, as one that waits.
        """
        secret = self._secrets[whose]
        for namespace in self._pending if whose == OPERATOR else [whose]:
            queues = self._queues(namespace, secret)
            for pending in self._pending[namespace].values():
                for page in pending.pages:
                    since = pending.since(page)
                    if whose == OPERATOR and self.config.has_own_secret and not self._is_known(secret):
                        yield page, [None if _has_operator(page) else since]
                    else:
                        accepting = [queue for queue in queues if queue.receiver.accepts(page.severity)]
                        yield page, [queue.waits_since(page, since) for queue in accepting]

    def _ages(self, whose: str) -> list[float]:
        return [self._age(since) for _, waits in self._waits(whose) for since in waits if since is not None]

    def _age(self, since: float) -> float:
        return max(0.0, self.clock.monotonic() - since)

    # Secrets

    def _secret(self, namespace: str) -> _Secret:
        return self._secrets.setdefault(namespace, _Secret())

    def _is_known(self, own: _Secret) -> bool:
        """Return whether the operator's receivers are: it should have some, so a Secret without any may come back."""
        return own.found is not None and bool(own.found.receivers or not self.config.has_own_secret)

    @staticmethod
    def _queues(namespace: str, *secrets: _Secret) -> list[ReceiverQueue]:
        """Return those that get the namespace's pages."""
        return [each for secret in secrets for each in secret.queues.values() if each.receiver.covers(namespace)]

    def _read_secrets(self) -> None:
        now, paging = self.clock.monotonic(), self._pages()
        busy = sum(secret.is_busy for secret in self._secrets.values())
        for namespace, secret in self._secrets.items():
            wait = _REFRESH if paging and (namespace == OPERATOR or namespace in paging) else _IDLE_REFRESH
            is_fresh = secret.read_at is not None and now - secret.read_at < wait
            if not secret.is_busy and not is_fresh and (busy < _MOST_READS or namespace == OPERATOR):
                secret.is_busy, busy = True, busy + 1
                self._begin(self._read(namespace, secret))

    async def _read(self, namespace: str, secret: _Secret) -> None:
        try:
            found = await self.source.receivers(namespace)
        except PortError as error:
            log.warning(
                "the Secret with receivers of %s cannot be read: %s", namespace or "the operator", error,
                extra={"reason": Reason.PAGE_FAILED, "remedy": error.remedy},
            )  # fmt: skip
        else:
            self._follow(namespace, secret, found)
        finally:
            secret.is_busy, secret.read_at = False, self.clock.monotonic()

    def _follow(self, namespace: str, secret: _Secret, found: Receivers) -> None:
        """Follow a Secret that changed: mistakes in the operator's own are reported in its log alone."""
        if found == secret.found:
            return
        secret.found = found
        if namespace == OPERATOR:
            for problem in found.problems:
                log.error("%s", problem.message, extra={"reason": problem.reason})
        before, monotonic = secret.queues, self.clock.monotonic
        secret.queues = {each.id: before.get(each.id) or ReceiverQueue(each, monotonic) for each in found.receivers}
        for receiver in found.receivers:
            if secret.queues[receiver.id].receiver != receiver:
                secret.queues[receiver.id].correct(receiver)
        for pipelines in self._pending.values() if namespace == OPERATOR else [self._pending.get(namespace, {})]:
            for key in pipelines:
                self.wake(key)
        self._something.set()

    # Pages

    def _pages(self) -> dict[str, list[Page]]:
        """Return all pages by namespace, without namespaces that have none."""
        found = {
            name: [page for pending in pipelines.values() for page in pending.pages]
            for name, pipelines in self._pending.items()
        }
        return {name: pages for name, pages in found.items() if pages}

    def _send_pages(self) -> None:
        """Begin to send what is due."""
        pages = self._pages()
        for namespace, secret in self._secrets.items():
            for queue in secret.queues.values():
                due = {} if queue.is_busy else _of(namespace, pages)
                if due and queue.due(due):
                    queue.is_busy = True
                    self._begin(self._send(namespace, secret, queue))

    async def _send(self, namespace: str, secret: _Secret, queue: ReceiverQueue) -> None:
        """Wait for a turn, send what is due then, and have the loops record the receipts."""
        if namespace == OPERATOR:
            turn = self._own.turn(queue.receiver.id, is_failing=queue.is_failing)
        else:
            turn = self._others.turn(namespace, is_failing=any(each.is_failing for each in secret.queues.values()))
        try:
            async with turn:
                receiver, began, pages = queue.receiver, self.clock.monotonic(), _of(namespace, self._pages())
                queue.keep_only(pages)
                is_known = secret.queues.get(receiver.id) is queue
                if is_known and (notices := queue.due(pages)):
                    self.may_write()
                    answers = await self._sent(receiver, notices)
                    self._answered(queue, receiver, list(zip(notices, answers, strict=True)), began)
        except NotLeading:
            return
        finally:
            queue.is_busy = False
        self._something.set()

    async def _sent(self, receiver: Receiver, notices: Sequence[Notice]) -> list[Answer]:
        """Return the answer to each notice; a namespace's receiver gets none while reserved addresses are not known."""
        now, pagerduty = self.clock.now(), self.config.pagerduty
        parts = [messages_of(receiver, notice, pagerduty=pagerduty, now=now) for notice in notices]
        try:
            allowance = await self._allowance(receiver)
        except PortError as error:
            log.warning(
                "no receiver of a namespace is paged, because the cluster's own addresses are not known: %s", error,
                extra={"reason": Reason.PAGE_FAILED, "remedy": error.remedy},
            )  # fmt: skip
            return [Answer(outcome=Outcome.FAILED)] * len(notices)
        answers = iter(await self.sender.send([message for part in parts for message in part], allowance))
        return [_worst([next(answers) for _ in part]) for part in parts]

    def _answered(
        self, queue: ReceiverQueue, receiver: Receiver, answers: list[tuple[Notice, Answer]], began: float
    ) -> None:
        """Note the answers to some notices; `receiver` is the one that they were sent to."""
        now = self.clock.now()
        for notice, answer in answers:
            self.metrics.sent(str(receiver.kind), str(answer.outcome))
            for page in notice.pages if answer.outcome is Outcome.DELIVERED else ():
                pending = self._pending.get(page.key.namespace, {}).get(page.key)
                if pending is not None and pending.deliver(page, receiver.id, now):
                    log.info("%s: sent to %s that %s is %s", page.key, receiver.id, page.reason, page.wanted)
                    self.wake(page.key)
        if queue.receiver != receiver:
            return  # it was corrected meanwhile
        queue.answered(answers, began=began)
        if (trouble := queue.trouble()) != queue.logged:
            queue.logged = trouble
            if trouble and receiver.is_trusted:
                log.error("%s", trouble, extra={"reason": Reason.PAGE_FAILED})

    async def _allowance(self, receiver: Receiver) -> Allowance:
        if receiver.is_trusted:
            return Allowance(trusted=True)
        cluster = await self.cluster.addresses() if self.cluster is not None else ()
        reserved = (*self.config.reserved, *cluster)
        return Allowance(trusted=False, entries=self.config.allowed_endpoints, reserved=reserved)


def _of(whose: str, pages: dict[str, list[Page]]) -> dict[str, list[Page]]:
    """Return the pages that receivers of a Secret may get."""
    return pages if whose == OPERATOR else {name: pages[name] for name in pages.keys() & {whose}}


def _has_operator(page: Page) -> bool:
    """Return whether a receiver of the operator has the current state."""
    return any(page.is_reported_to(sent.receiver) for sent in page.sent if sent.receiver.startswith(OPERATORS))


def _worst(answers: Sequence[Answer]) -> Answer:
    return next((answer for answer in answers if answer.outcome is not Outcome.DELIVERED), answers[0])
