"""The process of a local run."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from fencepost.contract.codec import ContractError
from fencepost.local.request import DEBUGGER, PROCESS, Event, Request
from fencepost_cli.errors import CliError
from fencepost_cli.ports import LocalEnd
from fencepost_cli.stores.processes.spark import NO_ANSWER, check_installed, variables

LOOK: Final = 0.5
"""Seconds between two looks at what may end the process."""


def run_local(request: Request, show: Callable[[Event], object], is_stale: Callable[[], bool]) -> LocalEnd:
    """Run the pipeline until it ends, and pass on what it says; a stale run is killed.

    An interrupt lets it commit the batch in progress; a second one kills it. Raises CliError.
    """
    check_installed("the pipeline runs")
    # A group of its own: an interrupt of the terminal is for this process, which passes it on. A debugger needs the
    # session of the terminal.
    # -P: no module of the folder in which the command is called.
    with subprocess.Popen(
        [sys.executable, "-P", "-m", PROCESS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONBREAKPOINT": DEBUGGER, **variables()} if request.debug else variables(),
        start_new_session=not request.debug,
        process_group=0 if request.debug else None,
    ) as process:
        try:
            return _followed(process, request, show, is_stale)
        finally:
            process.kill()


def _followed(
    process: subprocess.Popen[str], request: Request, show: Callable[[Event], object], is_stale: Callable[[], bool]
) -> LocalEnd:
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_read, args=[process, lines], daemon=True).start()
    assert process.stdin is not None  # noqa: S101 - a pipe
    process.stdin.write(f"{request.to_json()}\n")
    process.stdin.flush()
    is_interrupted = False
    while True:
        try:
            with suppress(queue.Empty):
                line = lines.get(timeout=LOOK)
                if line is None:
                    raise CliError(
                        f"the process that runs the pipeline ended with {process.wait()}",
                        remedy=NO_ANSWER,
                    )
                event = _event(line)
                show(event)
                if event.ended is not None:
                    return LocalEnd(verdict=event.ended, is_interrupted=is_interrupted)
            if is_stale():
                return LocalEnd(verdict=None, is_interrupted=False)
        except KeyboardInterrupt:
            if is_interrupted:
                raise
            is_interrupted = True
            process.send_signal(signal.SIGTERM)


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None  # noqa: S101 - a pipe
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def _event(line: str) -> Event:
    try:
        return Event.from_json(line)
    except ContractError as error:
        raise CliError(
            f"the process that runs the pipeline said {line[:200]!r}", remedy="update the command"
        ) from error
