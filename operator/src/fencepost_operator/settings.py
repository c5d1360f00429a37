"""The operator's settings, from its environment; each bad value is one clear error."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_type_hints

from fencepost_operator.endpoints import AllowedEndpoint, parse_entries

PREFIX: Final = "FENCEPOST_"
SLOWEST_RESYNC: Final = 60.0
"""Seconds. A driver that hangs makes no event, so only looking finds it; and alerts on passes rely on this bound."""

PAGERDUTY_URL: Final = "https://events.pagerduty.com/v2/enqueue"
"""Of the service region US."""
MOST_RESTARTS: Final = 10_000
MOST_SHARDS: Final = 32
"""Each has a Lease, which is renewed every 2 s, and whose name is in the operator's Role."""

_DURATION: Final = re.compile(r"([0-9]{1,6})([smh])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600}
_LONGEST_DURATION: Final = 24 * 3600
_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
_LABEL: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_NAME: Final = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"


class SettingsError(ValueError):
    """A variable of the environment cannot be used; the message names it and says what to set."""


def _text(pattern: str, remedy: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"set {remedy}")
        return text

    return parse


def _url(what: str) -> Callable[[str], str]:
    parse = _text(r"https?://[!-~]{1,300}", what)
    return lambda text: parse(text).rstrip("/")


def _whole(least: int, most: int, remedy: str) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise ValueError(f"set {remedy}")
        return int(text)

    return parse


_SCOPE: Final = _text(_LABEL, "up to 63 lower-case letters, digits and dashes, such as 'production'")
_DOMAIN: Final = _text(_NAME, "the cluster's DNS domain, such as 'cluster.local'")
_LEASE: Final = _text(_NAME, "the name of a Lease, such as 'fencepost', or nothing where only one operator runs")
_SECRET: Final = _text(_NAME, "the name of a Secret in the operator's namespace, such as 'fencepost-pages', or nothing")
_SECRET_KEY: Final = _text(r"[-._a-zA-Z0-9]{1,253}", "a key of the Secret, such as 'heartbeat'")
_HOLDER: Final = _text(r"[A-Za-z0-9._-]{1,300}", "the pod's name and uid, such as 'fencepost-0_3f1c0f0e'")
_RUNBOOKS: Final = _url("the address of docs/runbooks, such as 'https://docs.example/runbooks', or nothing")
_PAGERDUTY: Final = _url(f"the address of PagerDuty's Events API v2, such as {PAGERDUTY_URL!r}, or nothing")
_PORT: Final = _whole(1, 65535, "a port from 1 to 65535, such as 8080")
_RESTARTS: Final = _whole(0, MOST_RESTARTS, f"a number from 0 (no limit) to {MOST_RESTARTS}, such as 5")

_SHARDS: Final = _whole(1, MOST_SHARDS, f"a number from 1 to {MOST_SHARDS}, such as 3")


def _namespaces(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if not re.fullmatch(_LABEL, name):
            raise ValueError(f"{name!r} is not a namespace; set names separated by commas, or nothing to watch all")
    return names


def _endpoints(text: str) -> tuple[AllowedEndpoint, ...]:
    return parse_entries(text.split(","))


def _duration(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None or not 1 <= int(match[1]) * _UNITS[match[2]] <= _LONGEST_DURATION:
        raise ValueError("set a duration from 1s to 24h, such as '10m'")
    return float(int(match[1]) * _UNITS[match[2]])


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 1 <= seconds <= SLOWEST_RESYNC:
        raise ValueError(f"set a number of seconds from 1 to {SLOWEST_RESYNC:.0f}, such as 5")
    return seconds


def _level(text: str) -> int:
    if text.upper() not in _LEVELS:
        raise ValueError(f"set one of {', '.join(_LEVELS)}")
    return logging.getLevelNamesMapping()[text.upper()]


def _absolute(text: str) -> Path:
    path = Path(text)
    if not path.is_absolute():
        raise ValueError("set an absolute path")
    return path


def _switch(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError("set true or false")
    return text == "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The operator's configuration.

    `scope` is the first part of every fence key: pipelines of two operators that share a Cassandra keyspace stay
    apart by it.  `namespace` is the operator's own: Helm keeps the clusters' releases there.  `watch_namespaces` empty
    means all.  `resync_seconds` is how often a pipeline is reconciled when no event asks for it.
    `allowed_endpoints` empty means that the operator may connect to any Kafka and Cassandra.
    `lease` is the name of the Lease in `namespace` that replicas share; empty means that there is only this operator.
    `shards` is the number of parts into which pipelines are divided: each has a Lease, and so a replica that acts.
    `runbook_url` is where docs/runbooks is served; empty means that messages name no page.
    `max_concurrent_restarts` bounds how many healthy pipelines are replaced by plan at the same time; 0 is any number.
    `pages_secret` is the Secret in `namespace` with the operator's own receivers of pages, '' without one; a pipeline
    that is not ready for `pages_not_ready_for` seconds pages.  An incident is over when its cause has been gone for
    `pages_resolve_after` seconds.  `pagerduty_url` is where PagerDuty's Events API v2 is.
    `heartbeat_secret` has the URL of a dead man's switch under `heartbeat_key`, '' without one.
    `metrics_tls` is a folder with tls.crt and tls.key: metrics are served over TLS then, on `metrics_tls_port` alone.
    `metrics_authentication` lets those read them who may `get` the path /metrics; it needs `metrics_tls`.
    `holder` identifies the replica: it stays the same after a restart of the container, whose predecessor is dead.
    """

    scope: Annotated[str, _SCOPE] = "default"
    namespace: Annotated[str, _SCOPE] = "fencepost-system"
    watch_namespaces: Annotated[tuple[str, ...], _namespaces] = ()
    cluster_domain: Annotated[str, _DOMAIN] = "cluster.local"
    resync_seconds: Annotated[float, _seconds] = 5.0
    allowed_endpoints: Annotated[tuple[AllowedEndpoint, ...], _endpoints] = ()
    log_level: Annotated[int, _level] = logging.INFO
    chart: Annotated[Path, _absolute] = Path("/opt/fencepost/charts/spark-cluster")
    helm: Annotated[Path, _absolute] = Path("/usr/local/bin/helm")
    metrics_port: Annotated[int, _PORT] = 8080
    probes_port: Annotated[int, _PORT] = 8081
    metrics_tls: Annotated[Path | None, _absolute] = None
    metrics_tls_port: Annotated[int, _PORT] = 8443
    metrics_authentication: Annotated[bool, _switch] = False
    max_concurrent_restarts: Annotated[int, _RESTARTS] = 5
    lease: Annotated[str, _LEASE] = ""
    shards: Annotated[int, _SHARDS] = 1
    holder: Annotated[str, _HOLDER] = ""
    runbook_url: Annotated[str, _RUNBOOKS] = ""
    pages_secret: Annotated[str, _SECRET] = ""
    pages_not_ready_for: Annotated[float, _duration] = 600.0
    pages_resolve_after: Annotated[float, _duration] = 300.0
    pagerduty_url: Annotated[str, _PAGERDUTY] = PAGERDUTY_URL
    heartbeat_secret: Annotated[str, _SECRET] = ""
    heartbeat_key: Annotated[str, _SECRET_KEY] = "heartbeat"
    heartbeat_interval_seconds: Annotated[float, _seconds] = 20.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Read each field from `FENCEPOST_` and its name; unset and empty mean the default.

        Raises SettingsError at the first variable that cannot be used.
        """
        found: dict[str, Any] = {}
        for field, hint in get_type_hints(cls, include_extras=True).items():
            name, parse = f"{PREFIX}{field.upper()}", get_args(hint)[1]
            if text := environment.get(name, "").strip():
                try:
                    found[field] = parse(text)
                except ValueError as error:
                    raise SettingsError(f"{name}={text!r} cannot be used: {error}") from error
        settings = cls(**found)
        if settings.metrics_authentication and settings.metrics_tls is None:
            raise SettingsError(
                f"{PREFIX}METRICS_AUTHENTICATION needs {PREFIX}METRICS_TLS, for a token is not sent in the clear: set "
                "the chart's metrics.tls.secretName"
            )
        if settings.shards > 1 and not settings.lease:
            raise SettingsError(f"{PREFIX}SHARDS={settings.shards} needs {PREFIX}LEASE: each shard has a Lease")
        if 0 < settings.max_concurrent_restarts < settings.shards:
            raise SettingsError(
                f"{PREFIX}MAX_CONCURRENT_RESTARTS={settings.max_concurrent_restarts} is less than "
                f"{PREFIX}SHARDS={settings.shards}, and each shard needs one: set at least that, or 0 for no limit"
            )
        return settings
