"""Makes a history that breaks something as small as it can be: fewer events, then shorter and plainer ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, TypeVar

H = TypeVar("H")
"""A history: a dataclass with `events` in their order, and a `setup`."""
DURATIONS = ("seconds", "lasts")


def shrink(history: H, breaks: Callable[[H], bool]) -> H:
    """Return the smallest history found that still breaks; each try plays one."""
    tried = True
    while tried:
        tried = False
        for smaller in _smaller(history):
            if breaks(smaller):
                history, tried = smaller, True
                break
    return history


def _smaller(history: Any) -> Iterator[Any]:
    """Yield histories that are a little simpler, the boldest first."""
    events = history.events
    size = len(events) // 2
    while size:
        for start in range(0, len(events), size):
            yield replace(history, events=events[:start] + events[start + size :])
        size //= 2
    for field in fields(history.setup):
        if getattr(history.setup, field.name) != field.default and field.name != "operators":
            plainer: dict[str, Any] = {field.name: field.default}
            yield replace(history, setup=replace(history.setup, **plainer))
    if history.setup.operators > 1 and all(getattr(event, "operator", 0) == 0 for event in events):
        yield replace(history, setup=replace(history.setup, operators=1))
    for place, event in enumerate(events):
        for field in fields(event):
            for value in _plainer(field.name, getattr(event, field.name), field.default):
                changed = replace(event, **{field.name: value})
                yield replace(history, events=(*events[:place], changed, *events[place + 1 :]))


def _plainer(name: str, value: Any, usual: Any) -> Iterator[Any]:
    """Yield simpler values of a field: whole seconds, half the duration, what is usual."""
    if name == "at":
        if value != int(value):
            yield float(int(value))
    elif name in DURATIONS:
        if value >= 2:
            yield type(value)(int(value / 2))
    elif value != usual:
        yield usual
