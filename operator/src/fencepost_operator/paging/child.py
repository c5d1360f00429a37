"""The process that sends a few messages of one receiver: request on standard input, lines on standard output.

`python -I -m fencepost_operator.paging.child`.  It holds no credentials but the receiver's, and ends after one request.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from fencepost_operator.paging import delivery, sandbox
from fencepost_operator.paging.delivery import Answer, Message
from fencepost_operator.paging.http_post import post

Report: TypeAlias = Callable[[Answer], None]
"""Reports the answer to a message; the last one counts."""


def main() -> None:
    """Send what standard input says."""
    text = sys.stdin.buffer.read(delivery.REQUEST_LIMIT + 1)
    if len(text) > delivery.REQUEST_LIMIT:
        raise SystemExit("the request is too large")
    messages, allowance = delivery.from_json(text.decode())
    # What libraries print is discarded; the answers have a descriptor of their own.
    answers = os.dup(sys.stdout.fileno())
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(null, stream.fileno())
    send_by_apprise: Callable[[Message, Report], Answer] = _post
    if any(message.apprise for message in messages):
        from fencepost_operator.paging import by_apprise  # noqa: PLC0415 - takes a second, and 30 MB

        by_apprise.prepare()
        send_by_apprise = by_apprise.send
    sandbox.Sandbox(sandbox.policy_of(allowance)).enter()
    for number, message in enumerate(messages):
        send_one(send_by_apprise if message.apprise else _post, message, partial(_report, answers, number))


def send_one(send: Callable[[Message, Report], Answer], message: Message, report: Report) -> None:
    """Report the answer to a message, nothing after an error: tenants must not learn which one an address causes."""
    with suppress(Exception):
        report(send(message, report))


def _report(descriptor: int, number: int, answer: Answer) -> None:
    """Write the answer to a message at once: this process may be killed the next moment."""
    os.write(descriptor, delivery.answer_line(number, answer).encode())


def _post(message: Message, _report: Report) -> Answer:
    return post(message)


if __name__ == "__main__":
    main()
