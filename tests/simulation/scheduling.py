"""Runs the operator's coroutines step by step, without an event loop: the same steps in the same order on each machine.

The ports of the simulation answer at once, and suspend only where a history interrupts an operator.  So what asyncio
would do side by side is done one after the other, and nothing waits.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from fencepost_operator.api import Spec
from fencepost_operator.decision import rollout
from fencepost_operator.decision.rules import preconditions
from fencepost_operator.desired.hashes import Fingerprints, fingerprints
from fencepost_operator.runtime import observer, reconciler, rewind_observer


@dataclass(frozen=True, slots=True)
class Pause:
    """What a suspended operator waits for: that many seconds."""

    seconds: float

    def __await__(self) -> Generator[Pause, None, None]:
        yield self


class OneAfterTheOther:
    """The part of asyncio that the observer uses."""

    @staticmethod
    async def gather(*awaitables: Any) -> list[Any]:
        """Wait for each in its turn; close the others when one raises or the operator dies."""
        done = 0
        try:
            results = []
            for awaitable in awaitables:
                done += 1
                results.append(await awaitable)
            return results
        finally:
            for awaitable in awaitables[done:]:
                awaitable.close()

    @staticmethod
    def timeout(_seconds: float) -> AbstractAsyncContextManager[None]:
        """Wait for as long as it takes."""
        return nullcontext()


@dataclass(slots=True)
class KeptFingerprints:
    """Fingerprints of specs that were seen before: a third of a decision's time."""

    _kept: dict[tuple[int, tuple[tuple[str, str | None], ...], str], tuple[Spec, Fingerprints]] = field(
        default_factory=dict
    )

    def __call__(self, spec: Spec, references: Mapping[str, str | None], chart: str = "") -> Fingerprints:
        """Return the fingerprints; a spec is known by its identity, which it keeps as long as it is kept here."""
        key = (id(spec), tuple(references.items()), chart)
        if key not in self._kept:
            self._kept[key] = (spec, fingerprints(spec, references, chart))
        return self._kept[key][1]


def _unspread(seconds: float) -> float:
    return seconds


@contextmanager
def without_event_loop() -> Generator[None]:
    """Let the operator's code run on `OneAfterTheOther`, wait exactly as long as it says, and log nothing."""
    with ExitStack() as stack:
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable()
        for module in (observer, rewind_observer):
            stack.enter_context(mock.patch.object(module, "asyncio", OneAfterTheOther))
        stack.enter_context(mock.patch.object(reconciler, "jittered", _unspread))
        kept = KeptFingerprints()
        for module in (preconditions, rollout):
            stack.enter_context(mock.patch.object(module, "fingerprints", kept))
        yield
