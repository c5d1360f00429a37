"""Marks of a field: what a value must be, checked where JSON is read and by the API server, and what the CRD adds.

`pydantic.Field` has the bounds of numbers and of lengths, in both places as well.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from fencepost_operator.api.quantities import DURATION, parse_duration, parse_quantity


class Check(ABC):
    """What a value must be. `cel` is the rule of the API server over an expression such as 'self'."""

    __slots__ = ()

    @property
    @abstractmethod
    def meaning(self) -> str:
        """What the value must be, after 'must be' and after 'is not'."""

    @property
    def problem(self) -> str:
        """What is wrong with a value that is not."""
        return f"is not {self.meaning}"

    @property
    def demand(self) -> str:
        """What the API server asks for."""
        return f"must be {self.meaning}"

    @abstractmethod
    def holds(self, value: Any) -> bool:  # noqa: ANN401 - the field's
        """Return whether a value is that; the field's type is checked before."""

    @abstractmethod
    def cel(self, subject: str) -> str:
        """Return the rule in CEL."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401
        """Check a value after its type."""
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def _checked(self, value: Any) -> Any:  # noqa: ANN401 - the field's
        if not self.holds(value):
            raise ValueError(self.problem)
        return value


@dataclass(frozen=True, slots=True)
class Matching(Check):
    """Text that a pattern matches as a whole, read alike by Python and by Go's RE2.

    `in_words`: the API server names the meaning; else it checks the keyword `pattern`, and prints that.
    """

    pattern: str
    meaning: str
    in_words: bool = False

    def holds(self, value: str) -> bool:
        """Return whether the text matches."""
        return re.fullmatch(self.pattern, value) is not None

    def cel(self, subject: str) -> str:
        """Return the rule in CEL; a pattern has no quote."""
        return f"{subject}.matches('^{self.pattern}$')".replace("\\", "\\\\")


@dataclass(frozen=True, slots=True)
class DurationRange(Check):
    """A duration, in seconds, within bounds in Kubernetes' notation, or 0."""

    least: str
    most: str
    such_as: str
    or_zero: bool = False

    @property
    def meaning(self) -> str:
        """The bounds."""
        zero = "0s, or " if self.or_zero else ""
        return f"{zero}a duration from {self.least} to {self.most}, such as {self.such_as}"

    def holds(self, value: float) -> bool:
        """Return whether the seconds are within the bounds."""
        return parse_duration(self.least) <= value <= parse_duration(self.most) or (self.or_zero and value == 0)

    def cel(self, subject: str) -> str:
        """Return the rule in CEL."""
        found = f"duration({subject})"
        within = f"{found} >= duration('{self.least}') && {found} <= duration('{self.most}')"
        within = f"({found} == duration('0s') || ({within}))" if self.or_zero else within
        return f"{subject}.matches('^{DURATION.pattern}$') && {within}"


@dataclass(frozen=True, slots=True)
class QuantityRange(Check):
    """A quantity of bytes within bounds in Kubernetes' notation; `because` is the reason of the lower one."""

    least: str
    such_as: str
    because: str = ""
    most: str = "1Pi"

    @property
    def meaning(self) -> str:
        """The bounds."""
        reason = f" ({self.because})" if self.because else ""
        return f"a quantity from {self.least} to {self.most}{reason}, such as {self.such_as}"

    def holds(self, value: int | str) -> bool:
        """Return whether the bytes are within the bounds."""
        return parse_quantity(self.least) <= parse_quantity(value) <= parse_quantity(self.most)

    def cel(self, subject: str) -> str:
        """Return the rule in CEL."""
        text = f"string({subject})"
        return (
            f"isQuantity({text}) && quantity({text}).compareTo(quantity('{self.least}')) >= 0 &&"
            f" quantity({text}).compareTo(quantity('{self.most}')) <= 0"
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule in CEL that the API server alone checks. `message` follows the field's name: what must be, what to do."""

    cel: str
    message: str
    field_path: str = ""


@dataclass(frozen=True, eq=False)
class Keywords:
    """Keywords of the schema in the CRD, beside those of the type or `instead` of them."""

    content: Mapping[str, Any]
    instead: bool = field(default=False, kw_only=True)


def keyed_by(name: str) -> Keywords:
    """Return the mark of a list in which each item has another value of a field."""
    return Keywords({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [name]})


SET = Keywords({"x-kubernetes-list-type": "set"})
"""The mark of a list in which each item is another one."""
EXACTLY_ONE = Keywords({"minProperties": 1, "maxProperties": 1})
"""The mark of an object with exactly one of its fields."""
ATOMIC = Keywords({"x-kubernetes-map-type": "atomic"})
"""The mark of a map that is replaced as a whole."""
