"""Types of fields: how each is read from JSON, and its schema in the CRD. Python code builds them unchecked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from fencepost.contract import Reason
from fencepost.contract.guidance import Severity
from fencepost_operator.api.checks import ATOMIC, Check, Keywords, Matching
from fencepost_operator.api.quantities import (
    QUANTITY,
    bytes_text,
    duration_text,
    parse_bytes,
    parse_duration,
    parse_quantity,
)

CONTROL: Final = "\\x00-\\x1f\\x7f-\\x9f\u2028\u2029"
"""Of a pattern: control characters, and everything that ends a line in Unicode or in YAML."""


def _quantity(read: Callable[[str | float], Any]) -> BeforeValidator:
    def check(raw: object) -> object:
        if not isinstance(raw, str | int | float) or isinstance(raw, bool):
            raise ValueError("is not a quantity such as 512Mi, 2Gi or 500m")
        return read(raw)

    return BeforeValidator(check)


def _quantity_text(raw: str | float) -> str:
    parse_quantity(raw)
    return str(raw)


def _duration(raw: object) -> float:
    if not isinstance(raw, str):
        raise ValueError("is not a duration such as 500ms, 5s or 1m30s")
    return parse_duration(raw)


def with_fallback(fallback: StrEnum) -> BeforeValidator:
    """Read a word that this release does not know as the fallback: another release of the operator may have stored it.

    A value that is not a string stays an error.
    """
    known = frozenset(type(fallback))

    def check(raw: object) -> object:
        return fallback if isinstance(raw, str) and raw not in known else raw

    return BeforeValidator(check)


@dataclass(frozen=True, slots=True)
class _Unreserved(Check):
    """The key of an annotation by which neither Kubernetes, a container runtime nor the operator takes instructions.

    One of them turns AppArmor's profile off.
    """

    pattern: str
    exception: str
    meaning: str = "an annotation by which Kubernetes or Fencepost takes instructions"

    @property
    def problem(self) -> str:
        return f"is {self.meaning}; remove it"

    @property
    def demand(self) -> str:
        prefixes = "kubernetes.io, k8s.io, fencepost.dev, io.kubernetes, io.containerd"
        return f"must have no prefix by which Kubernetes or Fencepost takes instructions ({prefixes}); remove it"

    def holds(self, value: str) -> bool:
        return value == self.exception or not re.match(self.pattern, value)

    def cel(self, subject: str) -> str:
        return f"{subject} == '{self.exception}' || !{subject}.matches('^{self.pattern}')"


_INT_OR_STRING: Final = Keywords({"x-kubernetes-int-or-string": True, "maxLength": 20}, instead=True)
Bytes = Annotated[int, _quantity(parse_bytes), PlainSerializer(bytes_text), _INT_OR_STRING]
"""A quantity, as whole bytes."""
QuantityText = Annotated[str, _quantity(_quantity_text), _INT_OR_STRING]
"""A quantity as it was written."""
Resource = Annotated[QuantityText, Keywords({"pattern": f"^{QUANTITY.pattern}$"})]
"""A quantity of a resource."""
Seconds = Annotated[
    float,
    BeforeValidator(_duration),
    PlainSerializer(duration_text),
    Keywords({"type": "string", "maxLength": 32}, instead=True),
]
"""A duration, as seconds."""
Count = Annotated[int, Field(ge=0)]

Text = Annotated[str, Field(min_length=1)]
"""Text that must not be empty."""
Line = Annotated[str, Keywords({"pattern": f"^[^{CONTROL}]*$"})]
"""Text of one line; `forbidden_text` checks each text of a spec for the same."""
Entrypoint = Annotated[
    str,
    Matching(
        "[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*",
        "module:function, such as flights.departures:transform",
        in_words=True,
    ),
]
Image = Annotated[str, Field(min_length=1, max_length=1000), Matching("[!-~]+", "an image's name, without blanks")]
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
ObjectName = Annotated[
    str,
    Field(max_length=253),
    Matching(f"{_LABEL}([.]{_LABEL})*", "the name of an object: at most 253 lower-case letters, digits, - and ."),
]
"""A DNS-1123 subdomain, as ConfigMaps and Secrets have it."""
Identifier = Annotated[
    str,
    Field(max_length=48),
    Matching("[a-z][a-z0-9_]*", "a Cassandra name: lower-case letters, digits and underscores"),
]
ColumnName = Annotated[
    str,
    Field(max_length=100),
    Matching("[A-Za-z_][A-Za-z0-9_]*", "a column's name: letters, digits and underscores"),
]
TableOption = Annotated[str, Field(max_length=100), Matching("[A-Za-z0-9_.-]+", "letters, digits, _, . and -")]
"""The name or the value of an option in CQL's maps, such as those of a compaction."""
PipelineName = Annotated[
    str,
    Field(max_length=38),
    Matching("[a-z0-9]([-a-z0-9]*[a-z0-9])?", "a pipeline's name: lower-case letters, digits and -"),
]
SnapshotName = Annotated[
    str,
    Field(max_length=63),
    Matching("[a-z0-9]([-a-z0-9.]*[a-z0-9])?", "a snapshot's id or name: lower-case letters, digits, - and ."),
]


def _with_zone(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("is not RFC 3339 with a time zone, such as 2026-01-31T12:00:00Z")
    return moment


Time = Annotated[datetime, AfterValidator(_with_zone)]
"""A moment with its time zone."""
SinkName = Annotated[
    str,
    Field(max_length=40),
    Matching("[a-z]([-_a-z0-9]*[a-z0-9])?", "a sink's name: lower-case letters, digits, - and _"),
]
"""Also the name of a folder in the driver's pod."""
PluginName = Annotated[
    str,
    Field(max_length=100),
    Matching("[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?", "the name of an entry point: letters, digits, -, _ and ."),
]
KafkaName = Annotated[
    str,
    Field(min_length=1, max_length=249),
    Matching("[A-Za-z0-9._-]+", "a name in Kafka: letters, digits, dots, underscores and hyphens"),
]
"""The name of a topic or a consumer group's id."""
HttpAddress = Annotated[
    str,
    Field(max_length=500),
    Matching(
        r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?",
        "an address as http://host:port or https://host:port/path, without account and query",
        in_words=True,
    ),
]
MessageName = Annotated[
    str,
    Field(max_length=500),
    Matching("[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*", "a message's full name, such as air.Flight"),
]
PARTITION: Final = re.compile("[A-Za-z0-9._-]+/[0-9]+")
PartitionKey = Annotated[str, Field(max_length=260), Matching(PARTITION.pattern, "topic/partition, such as flights/0")]
_SERVER: Final = r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}"
BootstrapServers = Annotated[
    str,
    Field(max_length=2000),
    Matching(
        f"{_SERVER}(,{_SERVER}){{0,19}}",
        "host:port, or up to 20 with commas and no blanks between them, such as kafka-0.kafka:9092,kafka-1.kafka:9092",
        in_words=True,
    ),
]
"""A Kafka client of the operator has a thread for each; it learns the other brokers from them."""
HostName = Annotated[
    str,
    Field(min_length=1, max_length=253),
    Matching("([A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9])?|[0-9A-Fa-f:.]+)", "a host name or an address"),
]
AnnotationKey = Annotated[
    str,
    Field(max_length=317),
    Matching(
        "([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?",
        "the key of an annotation, such as example.com/team",
    ),
    _Unreserved(
        "(([^/]*[.])?(kubernetes[.]io|k8s[.]io|fencepost[.]dev)/|io[.](kubernetes|containerd)[.])",
        exception="cluster-autoscaler.kubernetes.io/safe-to-evict",
    ),
]
Offsets = Annotated[Mapping[str, int], ATOMIC]
"""Offsets by 'topic/partition', in a status."""
FailureReason = Annotated[Reason, with_fallback(Reason.RUN_FAILED)]
"""The stored reason of a failed run. RunFailed stands in for an unknown one: the run is restarted within the budget."""
PageSeverity = Annotated[Severity, with_fallback(Severity.CRITICAL)]
"""A stored severity. Critical stands in for an unknown one: a page too many is better than none."""
