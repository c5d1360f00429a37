"""What goes to the process that sends, and what it answers: JSON of a bounded size; a message's last line counts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

REQUEST_LIMIT: Final = 2**20
"""Bytes."""
ANSWER_LIMIT: Final = 2**16
"""Bytes."""
SEND_TIMEOUT: Final = 6.0
"""Seconds for one step of one message."""


class Outcome(StrEnum):
    """Whether a message was delivered."""

    DELIVERED = "delivered"
    FAILED = "failed"
    """No answer, or one that may change: it is tried again soon."""
    PARTLY = "partly"
    """Some recipients of the URL have it, and others do not: a retry sends it to all of them."""
    REFUSED = "refused"
    """A permanent error: the key, the address or the message is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message: `body` to a URL by HTTP POST, or with a title to a URL of Apprise (`apprise` is its kind there)."""

    url: str = field(repr=False)
    body: str = field(repr=False)
    title: str = ""
    apprise: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca: str = ""
    """Certificates in PEM to trust in place of the usual ones, '' for those."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How a receiver answered a message: `status` is HTTP's, 0 without one; `retry_after` is in seconds."""

    outcome: Outcome
    status: int = 0
    retry_after: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """Where the sending process may connect: everywhere when `trusted`, else as an EndpointPolicy says."""

    trusted: bool
    entries: Sequence[str] = ()
    reserved: Sequence[str] = ()


def to_json(messages: Sequence[Message], allowance: Allowance) -> str:
    """Return the request of some messages."""
    return json.dumps({"messages": [asdict(message) for message in messages], "allowance": asdict(allowance)})


def from_json(text: str) -> tuple[list[Message], Allowance]:
    """Return what `to_json` made a text of."""
    request: dict[str, Any] = json.loads(text)
    return [Message(**each) for each in request["messages"]], Allowance(**request["allowance"])


def answer_line(number: int, answer: Answer) -> str:
    """Return an answer to the message of that number as a line; a later line replaces it."""
    return json.dumps([number, str(answer.outcome), answer.status, answer.retry_after]) + "\n"


def answers(text: str, expected: int) -> list[Answer]:
    """Return the answers in a text, as many as expected: what is missing or unreadable failed."""
    found = [Answer(outcome=Outcome.FAILED)] * expected
    for line in text.splitlines()[: 2 * expected]:
        try:
            number, outcome, status, retry_after = json.loads(line)
            answer = Answer(outcome=Outcome(outcome), status=int(status), retry_after=float(retry_after))
            found[range(expected)[number]] = answer
        except (ValueError, TypeError, IndexError):
            break
    return found
