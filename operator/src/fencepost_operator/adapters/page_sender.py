"""Runs the process that sends pages: its environment is empty, its answer is bounded, and it is killed in time."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fencepost_operator.adapters.child_process import child_process
from fencepost_operator.paging import child, delivery
from fencepost_operator.paging.delivery import Allowance, Answer, Message, Outcome

_PATIENCE: Final = 15.0
"""Seconds after which the process is killed; what it has answered by then counts."""


@dataclass(frozen=True, slots=True)
class ProcessSender:
    """Starts a Python process for each call. It holds no credentials of the operator."""

    patience: float = _PATIENCE

    async def send(self, messages: Sequence[Message], allowance: Allowance) -> Sequence[Answer]:
        """Return an answer for each message, within `patience`; never raises."""
        request = delivery.to_json(messages, allowance).encode()
        if len(request) > delivery.REQUEST_LIMIT:
            return [Answer(outcome=Outcome.REFUSED)] * len(messages)
        starting = child_process(
            *(sys.executable, "-I", "-m", child.__name__),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
            cwd="/",
        )
        text = bytearray()
        try:
            async with starting as process, asyncio.timeout(self.patience):
                await _exchange(process, request, text)
        except (TimeoutError, OSError):
            pass  # what it has not answered has failed
        return delivery.answers(text.decode(errors="replace"), len(messages))


async def _exchange(process: asyncio.subprocess.Process, request: bytes, text: bytearray) -> None:
    """Give the request, and take the answers up to their bound."""
    assert process.stdin is not None  # noqa: S101 - both were asked for
    assert process.stdout is not None  # noqa: S101
    process.stdin.write(request)
    with contextlib.suppress(ConnectionError):
        await process.stdin.drain()
    process.stdin.close()
    while len(text) < delivery.ANSWER_LIMIT and (part := await process.stdout.read(4096)):
        text += part
