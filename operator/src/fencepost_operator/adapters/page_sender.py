"""Runs the process that sends pages: its environment is empty, its answer is bounded, and it is killed in time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

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
        starting = asyncio.create_task(self._start())
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            await _kill(await starting)  # a start that is cancelled midway would leave its child behind
            raise
        except OSError:
            return [Answer(outcome=Outcome.FAILED)] * len(messages)
        text = bytearray()
        try:
            async with asyncio.timeout(self.patience):
                await _exchange(process, request, text)
        except (TimeoutError, OSError):
            pass  # what it has not answered has failed
        finally:
            await _kill(process)
        return delivery.answers(text.decode(errors="replace"), len(messages))

    @staticmethod
    async def _start() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-m", child.__name__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,  # its own process group, so that a kill takes children along
        )  # fmt: skip


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


async def _kill(process: asyncio.subprocess.Process) -> None:
    """End the process and what it started, and wait for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
