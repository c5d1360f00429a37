"""Receivers of pages, read from a Secret, and its mistakes.

Pure; no message repeats the Secret's content.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import urlsplit

from fencepost.contract.guidance import remedy_of
from fencepost_operator.api import Reason
from fencepost_operator.paging.page import PagingProblem
from fencepost_operator.paging.services import SCHEMAS

OPERATORS: Final = "operator/"
"""What the id of each receiver of the operator's own begins with."""
NAMESPACE_SECRET: Final = "fencepost-pages"  # noqa: S105 - a name
"""The Secret of a namespace whose pipelines have receivers of their own."""
MOST_LINES: Final = 16
"""Receivers of one key of a Secret."""
LONGEST_LINE: Final = 2048
LONGEST_CA: Final = 65_536
_ROUTING_KEY: Final = re.compile(r"[A-Za-z0-9]{32}")
_PLACE: Final = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
MIN_SEVERITY: Final = "minSeverity"
NAMESPACE_SELECTOR: Final = "namespaceSelector"
_SELECTOR: Final = re.compile(r"[a-z0-9*-]+(,[a-z0-9*-]+)*")
_PLAIN: Final = re.compile(r"[!-~]+")


class Kind(StrEnum):
    """The protocol of a receiver."""

    APPRISE = "apprise"
    PAGERDUTY = "pagerduty"
    ALERTMANAGER = "alertmanager"


ALERTMANAGER_OPTIONS: Final = tuple(f"alertmanager-{name}" for name in ("username", "password", "token", "ca"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretSource:
    """A Secret with receivers. `namespace` '' of the operator's own, which may reach everything."""

    namespace: str
    place: str
    """Namespace and name, for messages."""
    key: str = field(repr=False)
    """Tenants do not know it: ids are in statuses, and confirm no guess of the lines that they are hashes of."""
    ignored: frozenset[str] = frozenset()
    """Keys that are for something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """A receiver of pages. `target` is a URL or a key, and secret."""

    id: str
    kind: Kind
    namespace: str
    target: str = field(repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    where: str = ""
    """Secret, key and line."""
    min_severity: str = "warning"
    namespaces: tuple[str, ...] = ()
    """Names, with `*` for any text, of the namespaces whose pages it gets; all without one."""

    @property
    def is_trusted(self) -> bool:
        """Whether it is the operator's own."""
        return not self.namespace

    def covers(self, namespace: str) -> bool:
        """Whether it gets pages of a namespace."""
        return not self.namespaces or any(fnmatchcase(namespace, pattern) for pattern in self.namespaces)

    def accepts(self, severity: str) -> bool:
        """Whether it gets pages of a severity."""
        return severity == "critical" or self.min_severity != "critical"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receivers:
    """What a Secret says."""

    receivers: tuple[Receiver, ...] = ()
    problems: tuple[PagingProblem, ...] = ()


def parse_receivers(source: SecretSource, data: Mapping[str, str]) -> Receivers:
    """Return the receivers of a Secret's data, and a problem for each line that is none."""
    problems: list[PagingProblem] = []
    found: dict[str, Receiver] = {}
    wrong = dict(_wrong_options(source, data))
    given = {name: data[name].strip() for name in ALERTMANAGER_OPTIONS if data.get(name) and name not in wrong}
    options = {name.removeprefix("alertmanager-"): text for name, text in given.items()}
    for kind in Kind:
        lines = list(_lines(data.get(kind, "")))
        if len(lines) > MOST_LINES:
            problems.append(_problem(f"{source.place}, key {kind}, has more than {MOST_LINES} lines"))
        for number, line in lines[:MOST_LINES]:
            where = f"{source.place}, key {kind}, line {number}"
            target, *selecting = line.split()
            chosen = {name: value for name, _, value in (text.partition("=") for text in selecting)}
            if why := _why_not(source, kind, line, target, chosen):
                problems.append(_problem(f"{where}, {why}"))
                continue
            receiver = Receiver(
                id=_id(source, kind, target),
                kind=kind,
                namespace=source.namespace,
                target=target,
                options=options if kind is Kind.ALERTMANAGER else {},
                where=where,
                min_severity=chosen.get(MIN_SEVERITY, "warning"),
                namespaces=tuple(filter(None, chosen.get(NAMESPACE_SELECTOR, "").split(","))),
            )
            found[receiver.id] = receiver
    problems += [_problem(f"{source.place}, key {name}, {why}") for name, why in wrong.items()]
    return Receivers(receivers=tuple(found.values()), problems=tuple(problems))


def _wrong_options(source: SecretSource, data: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    known = {*Kind, *ALERTMANAGER_OPTIONS, *source.ignored}
    for name in sorted(data.keys() - known):
        yield name[:100], f"is not one of {', '.join(Kind)} and {', '.join(ALERTMANAGER_OPTIONS)}"
    for name in ALERTMANAGER_OPTIONS[:3]:
        if (text := data.get(name, "").strip()) and (not _PLAIN.fullmatch(text) or len(text) > LONGEST_LINE):
            yield name, "holds a blank, a control character or too much"
    if (name := ALERTMANAGER_OPTIONS[3]) in data and (
        "-----BEGIN CERTIFICATE-----" not in data[name] or len(data[name]) > LONGEST_CA
    ):
        yield name, "is not a certificate in PEM"


def _why_not(source: SecretSource, kind: Kind, line: str, target: str, chosen: Mapping[str, str]) -> str:
    """Return what is wrong with a line, '' for nothing."""
    if len(line) > LONGEST_LINE:
        return f"is longer than {LONGEST_LINE} characters"
    if why := _mistake(kind, target):
        return why
    allowed = [MIN_SEVERITY] if source.namespace else [MIN_SEVERITY, NAMESPACE_SELECTOR]
    if chosen.keys() - set(allowed):
        return f"has an option that is not one of {', '.join(allowed)}"
    if chosen.get(MIN_SEVERITY, "warning") not in {"warning", "critical"}:
        return f"needs {MIN_SEVERITY}=warning or {MIN_SEVERITY}=critical"
    if NAMESPACE_SELECTOR in chosen and not _SELECTOR.fullmatch(chosen[NAMESPACE_SELECTOR]):
        return f"needs names of namespaces in {NAMESPACE_SELECTOR}, such as {NAMESPACE_SELECTOR}=bank,team-*"
    return ""


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if (stripped := line.strip()) and not stripped.startswith("#"):
            yield number, stripped


def _mistake(kind: Kind, target: str) -> str:
    """Return what is wrong with a URL or a key, '' for nothing."""
    match kind:
        case Kind.APPRISE:
            schema, separator, rest = target.partition("://")
            if not separator or not rest or not _PLAIN.fullmatch(target):
                return "is not a URL of Apprise, such as mailtos://user:password@example.com"
            if schema.lower() not in SCHEMAS:
                return "names a service of Apprise that is not offered; docs/pages.md has those that are"
        case Kind.PAGERDUTY:
            if not _ROUTING_KEY.fullmatch(target):
                return "is not a routing key of PagerDuty's Events API v2: 32 letters and digits"
        case Kind.ALERTMANAGER:
            if not _PLAIN.fullmatch(target) or not _is_base_url(target):
                example = "http://alertmanager.monitoring:9093"
                return f"is not a base URL such as {example}; set an account in alertmanager-username"
    return ""


def _is_base_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        is_place = _PLACE.fullmatch(url.netloc) is not None and url.port != 0
    except ValueError:
        return False
    return is_place and url.scheme in {"http", "https"} and not (url.query or url.fragment)


def _id(source: SecretSource, kind: Kind, line: str) -> str:
    whose = "namespace/" if source.namespace else OPERATORS
    identity = f"{source.namespace}\n{line}"
    digest = hmac.new(source.key.encode(), identity.encode(), hashlib.sha256).hexdigest()[:12]
    return f"{whose}{kind}/{digest}"


def _problem(message: str) -> PagingProblem:
    remedy = remedy_of(Reason.RECEIVER_INVALID)
    return PagingProblem(reason=Reason.RECEIVER_INVALID, message=f"Secret {message}. {remedy[:1].upper()}{remedy[1:]}.")
