"""Longer retention for a while: what to set, the note of what was there before, and the way back.

The note is an annotation of the pipeline, written before Kafka is changed.  It says for each topic and setting what was
there, whether it was the topic's own or the broker's, and what we have set since, so that going back never undoes
another owner's change.  Whoever may edit the pipeline may write it, so it is read as a stranger's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from fencepost_cli.errors import CliError
from fencepost_operator.api import GROUP

ANNOTATION: Final = f"{GROUP}/extended-retention"
"""On a pipeline: JSON, {topic: {setting: {"before": number, "own": bool, "set": [number, …]}, "by": …, "at": …}}."""
TIME: Final = "retention.ms"
SIZE: Final = "retention.bytes"
SETTINGS: Final = (TIME, SIZE)
UNLIMITED: Final = -1
LARGEST: Final = 2**63 - 1
MOST_NOTED: Final = 65_536
"""Characters of the note; an object's annotations may have 256 KiB together."""
_MOST_VALUES: Final = 20
"""Values that we remember to have set, of one setting."""
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a topic: its value, and whether it is the topic's own or inherited from the broker."""

    value: int
    is_own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """What decides when Kafka deletes the records of a topic."""

    deletes: bool
    """False for a topic that is compacted alone."""
    settings: Mapping[str, Setting]


@dataclass(frozen=True, slots=True)
class Before:
    """What a setting was before we set it, and what we have set since."""

    setting: Setting
    set: tuple[int, ...]

    @property
    def own(self) -> int | None:
        """The topic's own value, None where it inherited one."""
        return self.setting.value if self.setting.is_own else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """The note of one topic."""

    settings: Mapping[str, Before]
    by: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is to be set in a topic: None deletes the topic's own value. `why_not` says why a setting stays as it is."""

    topic: str
    values: Mapping[str, int | None] = field(default_factory=dict)
    why_not: str | None = None


def extension(
    topic: str, found: TopicSettings, *, more_ms: int | None, to_ms: int | None, lift_size: bool
) -> tuple[Change, str | None]:
    """Return the change that keeps a topic's records longer, and a warning for the user; it never shortens."""
    if not found.deletes:
        return Change(topic=topic, why_not="it is compacted alone: no record is deleted by its age"), None
    time, size = found.settings[TIME], found.settings[SIZE]
    values: dict[str, int | None] = {}
    if time.value >= 0:
        wanted = min(to_ms if to_ms is not None else time.value + (more_ms or 0), LARGEST)
        if wanted > time.value:
            values[TIME] = wanted
    limited = size.value >= 0
    if limited and lift_size:
        values[SIZE] = UNLIMITED
    warning = None
    if limited and not lift_size:
        warning = (
            f"{topic} also deletes beyond retention.bytes={size.value}: add --lift-size to remove that limit meanwhile"
        )
    why = None if values else f"retention.ms={time.value} keeps its records as long already"
    return Change(topic=topic, values=values, why_not=why), warning


def noted(before: Noted | None, change: Change, found: TopicSettings, *, by: str, at: datetime) -> Noted:
    """Return the note of a topic before a change: what was first there stays noted."""
    settings = dict(before.settings) if before else {}
    for name, value in change.values.items():
        here = found.settings[name]
        known = settings.get(name)
        if known is None or not (here == known.setting or (here.is_own and here.value in known.set)):
            known = Before(here, ())  # it was changed since: the new value is the one to restore
        if value is not None:
            settings[name] = replace(known, set=(*known.set, value)[-_MOST_VALUES:])
    return Noted(settings=settings, by=by, at=at.isoformat(timespec="seconds"))


def restoration(topic: str, note: Noted, found: TopicSettings, *, force: bool) -> Change:
    """Return the change that restores a topic's settings, or why it does not where another user changed them since."""
    values: dict[str, int | None] = {}
    for name, before in note.settings.items():
        here = found.settings[name]
        is_ours = here.is_own and here.value in before.set
        is_back = here == before.setting or not (here.is_own or before.setting.is_own)
        if not (is_ours or is_back or force):
            last = before.set[-1] if before.set else "nothing"
            why = f"{name} is {here.value} and {last} was set: it was changed since; --force restores it anyway"
            return Change(topic=topic, why_not=why)
        values[name] = before.own  # also where it is back already: another broker may answer later
    return Change(topic=topic, values=values)


def read_note(text: str | None) -> dict[str, Noted]:
    """Return the note by topic, empty without one. Raises CliError for what no command has written."""
    if not text:
        return {}
    try:
        if len(text) > MOST_NOTED:
            raise ValueError  # noqa: TRY301 - one way to say it
        return {_topic(topic): _noted(found) for topic, found in json.loads(text).items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CliError(
            f"the annotation {ANNOTATION} is not what `fencepost retention extend` writes",
            remedy="set retention.ms of the topics by hand, then remove the annotation with kubectl annotate",
        ) from error


def write_note(notes: Mapping[str, Noted]) -> str | None:
    """Return the annotation's value, None for an empty one. Raises CliError when it is too long."""
    if not notes:
        return None
    text = json.dumps({topic: _json(note) for topic, note in sorted(notes.items())})
    if len(text) > MOST_NOTED:
        raise CliError("too many topics are extended to note them all", remedy="choose fewer with --topic")
    return text


def _json(note: Noted) -> dict[str, Any]:
    settings = {
        name: {"before": one.setting.value, "own": one.setting.is_own, "set": list(one.set)}
        for name, one in note.settings.items()
    }
    return {**settings, "by": note.by, "at": note.at}


def _noted(found: Any) -> Noted:  # noqa: ANN401 - anything
    settings = {name: _before(found[name]) for name in SETTINGS if name in found}
    return Noted(settings=settings, by=str(found.get("by"))[:200], at=str(found.get("at"))[:40])


def _topic(name: Any) -> str:  # noqa: ANN401
    if not isinstance(name, str) or not _TOPIC.fullmatch(name):
        raise ValueError
    return name


def _before(found: Any) -> Before:  # noqa: ANN401
    if not isinstance(found["own"], bool):
        raise TypeError
    setting = Setting(_number(found["before"]), is_own=found["own"])
    return Before(setting, tuple(_number(value) for value in found["set"][:_MOST_VALUES]))


def _number(value: Any) -> int:  # noqa: ANN401
    if not isinstance(value, int) or isinstance(value, bool) or not UNLIMITED <= value <= LARGEST:
        raise ValueError
    return value
