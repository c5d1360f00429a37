"""The operator's settings, from its environment; each bad value is one clear error."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from fencepost_operator.endpoints import AllowedEndpoint, parse_entries

PREFIX: Final = "FENCEPOST_"
SLOWEST_RESYNC: Final = 60.0
"""Seconds. A driver that hangs makes no event, so only looking finds it; and alerts on passes rely on this bound."""

PAGERDUTY_URL: Final = "https://events.pagerduty.com/v2/enqueue"
"""Of the service region US."""
MOST_RESTARTS: Final = 10_000

_T = TypeVar("_T")
_DNS_LABEL: Final = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
_DNS_NAME: Final = re.compile(r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")
_HOLDER: Final = re.compile(r"^[A-Za-z0-9._-]{1,300}$")
_URL: Final = re.compile(r"^https?://[!-~]{1,300}$")
_SECRET_KEY: Final = re.compile(r"^[-._a-zA-Z0-9]{1,253}$")
_DURATION: Final = re.compile(r"^([0-9]{1,6})([smh])$")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600}
_LONGEST_DURATION: Final = 24 * 3600
_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")


class SettingsError(ValueError):
    """A variable of the environment cannot be used; the message names it and says what to set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The operator's configuration.

    `scope` is the first part of every fence key: pipelines of two operators that share a Cassandra keyspace stay
    apart by it.  `namespace` is the operator's own: Helm keeps the clusters' releases there.  `watch_namespaces` empty
    means all.  `resync` is in seconds: how often a pipeline is reconciled when no event asks for it.
    `allowed_endpoints` empty means that the operator may connect to any Kafka and Cassandra.
    `lease` is the name of the Lease in `namespace` that replicas share; empty means that there is only this operator.
    `runbook_url` is where docs/runbooks is served; empty means that messages name no page.
    `max_concurrent_restarts` bounds how many healthy pipelines are replaced by plan at the same time; 0 is any number.
    `pages_secret` is the Secret in `namespace` with the operator's own receivers of pages, '' without one; a pipeline
    that is not ready for `pages_not_ready_after` seconds pages.  An incident is over when its cause has been gone for
    `pages_resolve_after` seconds.  `pagerduty_url` is where PagerDuty's Events API v2 is.
    `heartbeat_secret` has the URL of a dead man's switch under `heartbeat_key`, '' without one.
    `metrics_tls` is a folder with tls.crt and tls.key: metrics are served over TLS then, on `metrics_tls_port` alone.
    `metrics_authentication` lets those read them who may `get` the path /metrics; it needs `metrics_tls`.
    `holder` identifies the replica: it stays the same after a restart of the container, whose predecessor is dead.
    """

    scope: str = "default"
    namespace: str = "fencepost-system"
    watch_namespaces: tuple[str, ...] = ()
    cluster_domain: str = "cluster.local"
    resync: float = 5.0
    allowed_endpoints: tuple[AllowedEndpoint, ...] = ()
    log_level: int = logging.INFO
    chart: Path = Path("/opt/fencepost/charts/spark-cluster")
    helm: Path = Path("/usr/local/bin/helm")
    metrics_port: int = 8080
    probes_port: int = 8081
    metrics_tls: Path | None = None
    metrics_tls_port: int = 8443
    metrics_authentication: bool = False
    max_concurrent_restarts: int = 5
    lease: str = ""
    holder: str = ""
    runbook_url: str = ""
    pages_secret: str = ""
    pages_not_ready_after: float = 600.0
    pages_resolve_after: float = 300.0
    pagerduty_url: str = PAGERDUTY_URL
    heartbeat_secret: str = ""
    heartbeat_key: str = "heartbeat"
    heartbeat_interval: float = 20.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Read `FENCEPOST_*`. Raises SettingsError at the first variable that cannot be used."""
        read, usual = _Reader(environment), cls()
        found = cls(
            scope=read("SCOPE", usual.scope, _scope),
            namespace=read("NAMESPACE", usual.namespace, _scope),
            watch_namespaces=read("WATCH_NAMESPACES", usual.watch_namespaces, _namespaces),
            cluster_domain=read("CLUSTER_DOMAIN", usual.cluster_domain, _domain),
            allowed_endpoints=read("ALLOWED_ENDPOINTS", usual.allowed_endpoints, _endpoints),
            resync=read("RESYNC_SECONDS", usual.resync, _seconds),
            log_level=read("LOG_LEVEL", usual.log_level, _level),
            chart=read("CHART", usual.chart, _absolute),
            helm=read("HELM", usual.helm, _absolute),
            metrics_port=read("METRICS_PORT", usual.metrics_port, _port),
            probes_port=read("PROBES_PORT", usual.probes_port, _port),
            metrics_tls=read("METRICS_TLS", usual.metrics_tls, _absolute),
            metrics_tls_port=read("METRICS_TLS_PORT", usual.metrics_tls_port, _port),
            metrics_authentication=read("METRICS_AUTHENTICATION", usual.metrics_authentication, _switch),
            max_concurrent_restarts=read("MAX_CONCURRENT_RESTARTS", usual.max_concurrent_restarts, _limit),
            lease=read("LEASE", usual.lease, _object_name),
            holder=read("HOLDER", usual.holder, _holder),
            runbook_url=read("RUNBOOK_URL", usual.runbook_url, _url),
            pages_secret=read("PAGES_SECRET", usual.pages_secret, _secret_name),
            pages_not_ready_after=read("PAGES_NOT_READY_FOR", usual.pages_not_ready_after, _duration),
            pages_resolve_after=read("PAGES_RESOLVE_AFTER", usual.pages_resolve_after, _duration),
            pagerduty_url=read("PAGERDUTY_URL", usual.pagerduty_url, _url),
            heartbeat_secret=read("HEARTBEAT_SECRET", usual.heartbeat_secret, _secret_name),
            heartbeat_key=read("HEARTBEAT_KEY", usual.heartbeat_key, _secret_key),
            heartbeat_interval=read("HEARTBEAT_INTERVAL_SECONDS", usual.heartbeat_interval, _seconds),
        )
        if found.metrics_authentication and found.metrics_tls is None:
            raise SettingsError(
                f"{PREFIX}METRICS_AUTHENTICATION needs {PREFIX}METRICS_TLS, for a token is not sent in the clear: set "
                "the chart's metrics.tls.secretName"
            )
        return found


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads one variable; unset and empty mean the default."""

    environment: Mapping[str, str]

    def __call__(self, name: str, default: _T, parse: Callable[[str], _T]) -> _T:
        text = self.environment.get(PREFIX + name, "").strip()
        if not text:
            return default
        try:
            return parse(text)
        except ValueError as error:
            raise SettingsError(f"{PREFIX}{name}={text!r} cannot be used: {error}") from error


def _scope(text: str) -> str:
    if not _DNS_LABEL.match(text):
        raise ValueError("set up to 63 lower-case letters, digits and dashes, such as 'production'")
    return text


def _namespaces(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if not _DNS_LABEL.match(name):
            raise ValueError(f"{name!r} is not a namespace; set names separated by commas, or nothing to watch all")
    return names


def _endpoints(text: str) -> tuple[AllowedEndpoint, ...]:
    return parse_entries(text.split(","))


def _domain(text: str) -> str:
    if not _DNS_NAME.match(text):
        raise ValueError("set the cluster's DNS domain, such as 'cluster.local'")
    return text


def _object_name(text: str) -> str:
    if not _DNS_NAME.match(text):
        raise ValueError("set the name of a Lease, such as 'fencepost', or nothing where only one operator runs")
    return text


def _secret_name(text: str) -> str:
    if not _DNS_NAME.match(text):
        raise ValueError("set the name of a Secret in the operator's namespace, such as 'fencepost-pages', or nothing")
    return text


def _secret_key(text: str) -> str:
    if not _SECRET_KEY.match(text):
        raise ValueError("set a key of the Secret, such as 'heartbeat'")
    return text


def _duration(text: str) -> float:
    match = _DURATION.match(text)
    if match is None or not 1 <= int(match[1]) * _UNITS[match[2]] <= _LONGEST_DURATION:
        raise ValueError("set a duration from 1s to 24h, such as '10m'")
    return float(int(match[1]) * _UNITS[match[2]])


def _holder(text: str) -> str:
    if not _HOLDER.match(text):
        raise ValueError("set the pod's name and uid, such as 'fencepost-0_3f1c0f0e'")
    return text


def _url(text: str) -> str:
    if not _URL.match(text):
        raise ValueError("set the address of docs/runbooks, such as 'https://docs.example/runbooks', or nothing")
    return text.rstrip("/")


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


def _limit(text: str) -> int:
    if not text.isdecimal() or int(text) > MOST_RESTARTS:
        raise ValueError(f"set a number from 0 (no limit) to {MOST_RESTARTS}, such as 5")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:  # noqa: PLR2004 - TCP's bounds
        raise ValueError("set a port from 1 to 65535, such as 8080")
    return int(text)
