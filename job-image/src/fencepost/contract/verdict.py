"""How a driver ends: the exit code, and the verdict in the termination log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any, Final

from fencepost.contract.losses import LOSS_ID
from fencepost.contract.reasons import Reason

LOG_LINES: Final = 20
"""Lines of a driver's log that outlive its pod."""
LOG_LIMIT: Final = 2048
"""Characters of them together."""
LONGEST_LINE: Final = 300
"""Characters of one of them."""
_LARGEST: Final = 2**63 - 1
"""Of an integer in a verdict: Cassandra's bigint and the CRD's int64."""
_LONGEST_KEY: Final = 300
"""Characters of a 'topic/partition' key: a topic has 249 at most."""


class ExitCode(IntEnum):
    """How a driver ends; the operator decides by it."""

    STOPPED = 0
    """Stopped on request; the batch in progress is committed."""
    FAILED = 1
    """An exception that has no code of its own: restarted with backoff."""
    FENCED = 50
    """Another run or another pod holds the fence: nothing was committed after that."""
    BAD_SPEC = 51
    """The spec or the author's code cannot work as it is: a restart does not help."""
    DATA_LOSS = 52
    """Kafka no longer has what the fence row points at."""
    POISON_RECORD = 53
    """A record fails each time it is tried."""
    DEPENDENCY_DOWN = 54
    """Kafka or Cassandra did not answer for longer than the driver waits."""
    NO_EXECUTORS = 55
    """The Spark cluster gave no executor in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why the driver ended: JSON in the termination log.

    `message` says what happened, `remedy` what to do; `batch` holds the offsets of the batch in progress,
    {'topic/partition': [from, until)}, when there was one.  `suspect` says that one of its records may be why it
    failed; `record`, {'topic/partition': offset}, is the one that fails alone while others pass.
    `log` has the last lines that the driver logged before, the oldest first: they outlive the pod.
    `loss` is the id of the recorded loss that ended the run, '' for any other end: it does not fit in here itself.
    """

    exit_code: int
    reason: Reason
    message: str
    remedy: str
    epoch: int | None = None
    version: int | None = None
    batch: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    suspect: bool = False
    record: Mapping[str, int] = field(default_factory=dict)
    loss: str = ""
    log: tuple[str, ...] = ()

    LIMIT = 4096

    def to_json(self) -> str:
        """Return JSON of at most LIMIT bytes in UTF-8 (the kubelet's limit).

        The oldest lines of the log are dropped first, then the batch, the end of the message, the end of the remedy.
        """
        record = asdict(self)
        record["log"] = list(last_lines(self.log))
        while record["log"] and _excess(record) > 0:
            del record["log"][0]
        if _excess(record) > 0:
            record["batch"] = {}
        for name in ("message", "remedy"):
            record[name] = record[name][: self.LIMIT]
            while record[name] and (excess := _excess(record)) > 0:
                # A character takes six bytes at most, so this never removes more than it must.
                record[name] = record[name][: -max(1, excess // 6)]
        return _json(record)

    @classmethod
    def from_json(cls, text: str) -> Verdict | None:
        """Return the verdict in a termination message, or None when the message is not one.

        The tenant's code can write anything there, so nothing raises, and each field has its type: a field that cannot
        be used is read as absent, a reason that this release does not know as FAILED, named in the message.
        """
        try:
            raw: Any = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(raw, dict) or not isinstance(raw.get("reason"), str):
            return None
        code = _integer(raw.get("exit_code"))
        if code is None or code > 255:  # noqa: PLR2004 - a process's exit status
            return None
        reason, message = _reason(raw["reason"]), _text(raw.get("message"))
        return cls(
            exit_code=code,
            reason=reason or Reason.FAILED,
            message=message if reason is not None else f"{_text(raw['reason'])[:64]}: {message}",
            remedy=_text(raw.get("remedy")),
            epoch=_integer(raw.get("epoch")),
            version=_integer(raw.get("version")),
            batch=_batch(raw.get("batch")),
            suspect=raw.get("suspect") is True,
            record=_record(raw.get("record")),
            loss=_loss_id(raw.get("loss")),
            log=_log(raw.get("log")),
        )


def last_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the last LOG_LINES of what is not empty, each cut at its end, of LOG_LIMIT characters together."""
    kept: list[str] = []
    left = LOG_LIMIT
    for line in reversed([line for line in lines if line.strip()][-LOG_LINES:]):
        cut = line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"
        left -= len(cut)
        if left < 0:
            break
        kept.append(cut)
    return tuple(reversed(kept))


def _reason(word: str) -> Reason | None:
    try:
        return Reason(word)
    except ValueError:
        return None


def _integer(raw: object) -> int | None:
    return raw if isinstance(raw, int) and not isinstance(raw, bool) and 0 <= raw <= _LARGEST else None


def _text(raw: object) -> str:
    """Return bounded text that any API server takes: no control character, no half of a surrogate pair."""
    if not isinstance(raw, str):
        return ""
    return "".join(character if character.isprintable() else " " for character in raw[: Verdict.LIMIT])


def _log(raw: object) -> tuple[str, ...]:
    return last_lines(_text(line) for line in raw) if isinstance(raw, list) else ()


def _loss_id(raw: object) -> str:
    return raw if isinstance(raw, str) and LOSS_ID.fullmatch(raw) else ""


def _batch(raw: object) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for key, bounds in raw.items() if isinstance(raw, dict) else ():
        if len(key) > _LONGEST_KEY or not key.isprintable() or not isinstance(bounds, list):
            continue
        match [_integer(bound) for bound in bounds]:
            case [int(low), int(high)]:
                found[key] = (low, high)
            case _:
                continue
    return found


def _record(raw: object) -> dict[str, int]:
    match list(raw.items()) if isinstance(raw, dict) else ():
        case [(str(key), at)] if (
            len(key) <= _LONGEST_KEY and key.isprintable() and (offset := _integer(at)) is not None
        ):
            return {key: offset}
        case _:
            return {}


def _excess(record: Mapping[str, object]) -> int:
    """Return by how many bytes a verdict's JSON is too long; not above zero when it fits."""
    return len(_json(record).encode()) - Verdict.LIMIT


def _json(record: Mapping[str, object]) -> str:
    """Return JSON with every character as it is; half a surrogate pair, which UTF-8 does not have, becomes a '?'."""
    return json.dumps(record, sort_keys=True, ensure_ascii=False).encode(errors="replace").decode()
