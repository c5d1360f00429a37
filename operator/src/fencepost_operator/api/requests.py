"""Reads the spec of an object that asks for something once, a PipelineRewind or a PipelineTrial."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from typing import Final, TypeVar

from pydantic import ValidationError

from fencepost_operator.api.codec import decode
from fencepost_operator.api.forbidden_text import forbidden_text
from fencepost_operator.api.model import Model
from fencepost_operator.api.parsing import violations_of
from fencepost_operator.api.spec import Violation

S = TypeVar("S", bound=Model)

SHOWN: Final = 3
"""Violations that are named."""


def read_request(
    kind: type[S], raw: object, *, contradictions: Callable[[S], Iterable[Violation]], remedy: str
) -> S | tuple[Violation, ...]:
    """Return the spec, or what is wrong with it: the CRD refuses most of that already. Raises nothing."""
    if found := tuple(forbidden_text(raw)):
        return found
    try:
        spec = decode(kind, raw)
    except ValidationError as error:
        return tuple(replace(found, remedy=remedy) for found in islice(violations_of(error), SHOWN))
    except (ValueError, RecursionError):
        return (Violation("spec", "is not JSON of a reasonable depth and size", remedy),)
    return tuple(contradictions(spec)) or spec
