"""The pager of an operator that may die, on receivers that outlive it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from fakes.gate import Gate
from fakes.world import World
from fencepost_operator.paging.delivery import Allowance, Answer, Message, Outcome
from fencepost_operator.paging.receivers import Kind, Receiver, Receivers
from fencepost_operator.runtime.pager import PagerConfig, QueuedPager

RECEIVER = Receiver(id="operator/apprise/1", kind=Kind.APPRISE, namespace="", target="json://receiver")


@dataclass(frozen=True, slots=True)
class Heard:
    """One message, as the receiver has it."""

    key: str
    is_over: bool
    at: datetime


@dataclass(slots=True)
class Paging:
    """What lies outside of the operator: a Secret with a receiver, and all that the receiver heard."""

    world: World
    gate: Gate
    heard: list[Heard] = field(default_factory=list)
    is_down: bool = False
    """The receiver does not answer."""
    is_gone: bool = False
    """Its Secret does not exist."""
    pager: QueuedPager | None = None

    def begin(self) -> QueuedPager:
        """Return the pager of a new operator, which knows nothing."""
        self.pager = QueuedPager(
            source=self, sender=self, metrics=self, clock=self, config=PagerConfig(has_own_secret=True)
        )
        return self.pager

    async def settle(self) -> None:
        """Let the pager do what is due. Raises what killed the operator."""
        pager = self.pager
        for _ in range(3 if pager is not None else 0):
            assert pager is not None
            pager._read_secrets()
            pager._send_pages()
            for ended in await asyncio.gather(*pager._tasks, return_exceptions=True):
                if isinstance(ended, BaseException):
                    raise ended

    def monotonic(self) -> float:
        return self.world.now.timestamp()

    def now(self) -> datetime:
        return self.world.now

    async def receivers(self, namespace: str) -> Receivers:
        return Receivers() if namespace or self.is_gone else Receivers(receivers=(RECEIVER,))

    async def send(self, messages: Sequence[Message], allowance: Allowance) -> Sequence[Answer]:
        assert allowance.trusted
        if self.is_down:
            return [Answer(outcome=Outcome.FAILED)] * len(messages)
        for message in messages:
            key = message.body.partition("Incident: ")[2]
            heard = Heard(key, message.apprise == "success", self.world.now)
            await self.gate.write("page", partial(self.heard.append, heard))
        return [Answer(outcome=Outcome.DELIVERED)] * len(messages)

    def sent(self, kind: str, outcome: str) -> None:
        pass
