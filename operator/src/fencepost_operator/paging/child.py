"""The process that sends a few messages of one receiver: request on standard input, a line for each on standard output.

`python -I -m fencepost_operator.paging.child`.  It holds no credentials but the receiver's, and ends after one request.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from fencepost_operator.paging import delivery, sandbox
from fencepost_operator.paging.delivery import Answer, Message, Outcome
from fencepost_operator.paging.http_post import post


def main() -> None:
    """Send what standard input says."""
    text = sys.stdin.buffer.read(delivery.REQUEST_LIMIT + 1)
    if len(text) > delivery.REQUEST_LIMIT:
        raise SystemExit("the request is too large")
    messages, allowance = delivery.from_json(text.decode())
    # What libraries print is nobody's business; the answers have a descriptor of their own.
    answers = os.dup(sys.stdout.fileno())
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(null, stream.fileno())
    send_by_apprise: Callable[[Message], Answer] = post
    if any(message.apprise for message in messages):
        from fencepost_operator.paging import by_apprise  # noqa: PLC0415 - takes a second, and 30 MB

        by_apprise.prepare()
        send_by_apprise = by_apprise.send
    sandbox.Sandbox(sandbox.policy_of(allowance)).enter()
    for message in messages:
        line = delivery.answer_line(_sent(send_by_apprise if message.apprise else post, message))
        os.write(answers, line.encode())


def _sent(send: Callable[[Message], Answer], message: Message) -> Answer:
    """Send one message; whatever goes wrong says only that there was no answer."""
    try:
        return send(message)
    except Exception:  # noqa: BLE001 - what a service, or its address, made a library raise must not be told apart
        return Answer(outcome=Outcome.FAILED)


if __name__ == "__main__":
    main()
