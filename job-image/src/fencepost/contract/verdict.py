"""How a driver ends: the exit code, and the verdict in the termination log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Annotated, Any, Final

import msgspec

from fencepost.contract.codec import encode
from fencepost.contract.losses import LOSS_ID
from fencepost.contract.reasons import Reason

LOG_LINES: Final = 20
"""Lines of a driver's log that outlive its pod."""
LOG_LIMIT: Final = 2048
"""Characters of them together."""
LONGEST_LINE: Final = 300
"""Characters of one of them."""
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""An integer of a verdict: Cassandra's bigint and the CRD's int64."""
_ExitStatus = Annotated[int, msgspec.Meta(ge=0, le=255)]
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
        record |= {name: _whole(record[name]) for name in ("message", "remedy")}
        record["log"] = [_whole(line) for line in last_lines(self.log)]
        while record["log"] and _excess(record) > 0:
            del record["log"][0]
        if _excess(record) > 0:
            record["batch"] = {}
        for name in ("message", "remedy"):
            record[name] = record[name][: self.LIMIT]
            while record[name] and (excess := _excess(record)) > 0:
                # A character takes six bytes at most, so this never removes more than it must.
                record[name] = record[name][: -max(1, excess // 6)]
        return encode(record)

    @classmethod
    def from_json(cls, text: str) -> Verdict | None:
        """Return the verdict in a termination message, or None when the message is not one.

        The tenant's code can write anything there, so nothing raises, and each field has its type: a field that cannot
        be used is read as absent, a reason that this release does not know as FAILED, named in the message.
        """
        try:
            raw = msgspec.json.decode(text)
        except (ValueError, RecursionError):
            return None
        fields = _read(raw, dict[str, Any]) or {}
        code, word = _read(fields.get("exit_code"), _ExitStatus), _read(fields.get("reason"), str)
        if code is None or word is None:
            return None
        reason, message = _read(word, Reason), _text(fields.get("message"))
        return cls(
            exit_code=code,
            reason=reason or Reason.FAILED,
            message=message if reason is not None else f"{_text(word)[:64]}: {message}",
            remedy=_text(fields.get("remedy")),
            epoch=_read(fields.get("epoch"), _Count),
            version=_read(fields.get("version"), _Count),
            batch=_batch(fields.get("batch")),
            suspect=fields.get("suspect") is True,
            record=_record(fields.get("record")),
            loss=_loss_id(fields.get("loss")),
            log=last_lines(_text(line) for line in _read(fields.get("log"), list[Any]) or ()),
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


def _read(raw: object, kind: Any) -> Any:  # noqa: ANN401 - to mypy an Annotated type is none
    """Return `raw` where it is of that kind, None otherwise."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError:
        return None


def _text(raw: object) -> str:
    """Return bounded text that any API server takes: without control characters."""
    found = (_read(raw, str) or "")[: Verdict.LIMIT]
    return "".join(character if character.isprintable() else " " for character in found)


def _loss_id(raw: object) -> str:
    return raw if isinstance(raw, str) and LOSS_ID.fullmatch(raw) else ""


def _batch(raw: object) -> dict[str, tuple[int, int]]:
    entries = _read(raw, dict[str, Any]) or {}
    found = {key: _read(bounds, tuple[_Count, _Count]) for key, bounds in entries.items() if _is_key(key)}
    return {key: bounds for key, bounds in found.items() if bounds is not None}


def _record(raw: object) -> dict[str, int]:
    found = _read(raw, dict[str, _Count]) or {}
    return found if len(found) == 1 and all(map(_is_key, found)) else {}


def _is_key(text: str) -> bool:
    return len(text) <= _LONGEST_KEY and text.isprintable()


def _excess(record: Mapping[str, object]) -> int:
    """Return by how many bytes a verdict's JSON is too long; not above zero when it fits."""
    return len(encode(record).encode()) - Verdict.LIMIT


def _whole(text: str) -> str:
    """Return the text; half a surrogate pair, which UTF-8 does not have, becomes a '?'."""
    return text.encode(errors="replace").decode()
