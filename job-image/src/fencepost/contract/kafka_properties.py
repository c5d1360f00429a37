"""Which librdkafka properties a spec and its Secret may set, and who may load them.

A property reaches a library inside a process. In the operator that process is trusted by every tenant, so only ALLOWED
is loaded there: no file, no URL, no command, no plug-in, no callback. The same rules hold for the keys of the spec and
for the keys of the Secret. A message never repeats a value, because a value may be secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

Check = Callable[[str], str | None]
"""Returns what a value must be, or None when it is that."""


def _one_of(*values: str) -> Check:
    """Accept the values of an enum of librdkafka, which compares without case."""
    return lambda value: None if value.lower() in {known.lower() for known in values} else f"one of {', '.join(values)}"


def _between(least: int, most: int) -> Check:
    def check(value: str) -> str | None:
        fits = re.fullmatch(r"[0-9]{1,10}", value, re.ASCII) is not None and least <= int(value) <= most
        return None if fits else f"a whole number from {least} to {most}"

    return check


def _matching(pattern: str, meaning: str) -> Check:
    return lambda value: None if re.fullmatch(pattern, value) else meaning


_BOOLEAN: Final = _one_of("true", "false")
_SECRET: Final = _matching(r"[^\x00]{1,4096}", "text of at most 4096 characters")
_NAME: Final = _matching(r"[A-Za-z0-9._-]{1,255}", "up to 255 letters, digits, dots, dashes and underscores")
_PEM: Final = _matching(
    r"(?s)\s*-----BEGIN [A-Z0-9 ]+-----\n[^\x00]{1,60000}", "the content of a PEM file, not its name"
)

OPERATOR_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""SASL mechanisms that need a name and a password, and nothing else."""
_DRIVER_MECHANISMS: Final = ("GSSAPI", "OAUTHBEARER")
_MECHANISM: Final = _one_of(*OPERATOR_MECHANISMS, *_DRIVER_MECHANISMS)

ALLOWED: Final[Mapping[str, Check]] = MappingProxyType(
    {
        "broker.address.family": _one_of("any", "v4", "v6"),
        "client.id": _NAME,
        "client.rack": _NAME,
        "connections.max.idle.ms": _between(0, 3_600_000),
        "enable.ssl.certificate.verification": _BOOLEAN,
        "isolation.level": _one_of("read_committed", "read_uncommitted"),
        "metadata.max.age.ms": _between(1_000, 3_600_000),
        "reconnect.backoff.max.ms": _between(100, 60_000),
        "reconnect.backoff.ms": _between(10, 60_000),
        "retry.backoff.max.ms": _between(10, 60_000),
        "retry.backoff.ms": _between(10, 60_000),
        "sasl.mechanism": _MECHANISM,
        "sasl.mechanisms": _MECHANISM,
        "sasl.password": _SECRET,
        "sasl.username": _SECRET,
        "security.protocol": _one_of("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
        "socket.connection.setup.timeout.ms": _between(1_000, 60_000),
        "socket.keepalive.enable": _BOOLEAN,
        "socket.timeout.ms": _between(1_000, 60_000),
        "ssl.ca.pem": _PEM,
        "ssl.certificate.pem": _PEM,
        "ssl.endpoint.identification.algorithm": _one_of("none", "https"),
        "ssl.key.password": _SECRET,
        "ssl.key.pem": _PEM,
    }
)
"""Connection, TLS by PEM content, SASL by name and password, isolation level, bounded timeouts: the operator and the
driver load them."""

READER: Final[Mapping[str, Check]] = MappingProxyType(
    {
        "check.crcs": _BOOLEAN,
        "fetch.error.backoff.ms": _between(0, 60_000),
        "fetch.max.bytes": _between(1_024, 512 * 1024 * 1024),
        "fetch.message.max.bytes": _between(1_024, 512 * 1024 * 1024),
        "fetch.min.bytes": _between(1, 100_000_000),
        "fetch.queue.backoff.ms": _between(0, 60_000),
        "fetch.wait.max.ms": _between(0, 60_000),
        "max.partition.fetch.bytes": _between(1_024, 512 * 1024 * 1024),
        "queued.max.messages.kbytes": _between(1_024, 2_097_151),
        "queued.min.messages": _between(1, 10_000_000),
        "receive.message.max.bytes": _between(1_024 * 1024, 1024 * 1024 * 1024),
        "socket.nagle.disable": _BOOLEAN,
        "socket.receive.buffer.bytes": _between(0, 100_000_000),
        "socket.send.buffer.bytes": _between(0, 100_000_000),
    }
)
"""How the driver fetches: the operator fetches nothing and leaves them out."""

DRIVER_ONLY: Final = frozenset(
    {
        "https.ca.location",
        "https.ca.pem",
        "sasl.kerberos.keytab",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal",
        "sasl.kerberos.service.name",
        "sasl.oauthbearer.assertion.algorithm",
        "sasl.oauthbearer.assertion.claim.aud",
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        "sasl.oauthbearer.assertion.claim.iss",
        "sasl.oauthbearer.assertion.claim.jti.include",
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        "sasl.oauthbearer.assertion.claim.sub",
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.jwt.template.file",
        "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.grant.type",
        "sasl.oauthbearer.metadata.authentication.type",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.sub.claim.name",
        "sasl.oauthbearer.token.endpoint.url",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.cipher.suites",
        "ssl.crl.location",
        "ssl.curves.list",
        "ssl.key.location",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.sigalgs.list",
    }
)
"""OAuth, Kerberos and files: only the tenant's own pods load them. With one of them the operator opens no client, and
lag comes from what the driver records at a commit."""

RESERVED: Final = frozenset(
    {
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "group.id",
        "group.instance.id",
        "metadata.broker.list",
    }
)
"""What Fencepost sets itself."""

SECRETS: Final = frozenset(
    {
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
    }
)
"""What belongs in the Secret and not in the spec."""


@dataclass(frozen=True, slots=True)
class PropertyProblem:
    """One property that cannot be used: its key, what is wrong, what to do. It holds no value."""

    key: str
    problem: str
    remedy: str


def problems(properties: Mapping[str, str]) -> tuple[PropertyProblem, ...]:
    """Return everything that is wrong with properties of the spec or of the Secret, ordered by key."""
    return tuple(found for key in sorted(properties) if (found := _problem(key, properties[key])) is not None)


def _problem(key: str, value: str) -> PropertyProblem | None:
    if key in RESERVED:
        return PropertyProblem(key, "is set by Fencepost itself", "remove it")
    if key in DRIVER_ONLY:
        return None
    check = ALLOWED.get(key) or READER.get(key)
    if check is None:
        shown = key if re.fullmatch(r"[ -~]{1,100}", key) else ascii(key[:100])
        return PropertyProblem(
            shown,
            "is not a Kafka property that Fencepost allows",
            "remove it; docs/reference.md lists those that are allowed",
        )
    wanted = check(value)
    return PropertyProblem(key, "has a value that is not allowed", f"set it to {wanted}") if wanted else None


def is_of_readers(key: str) -> bool:
    """Return whether a property is for consumers alone: a producer would warn of it."""
    return key in {"check.crcs", "isolation.level", "max.partition.fetch.bytes"} or key.startswith(
        ("fetch.", "queued.")
    )


def of_secret(data: Mapping[str, str]) -> dict[str, str]:
    """Return the properties in a Secret's data: a newline at the end of a value, as editors leave it, is dropped."""
    return {key: value.rstrip("\n") for key, value in data.items()}


def why_driver_only(properties: Mapping[str, str]) -> str | None:
    """Return why the operator must not open a client with these properties, or None when it may.

    `properties` are those of the spec and of the Secret together, without `problems`.
    """
    if found := sorted(DRIVER_ONLY & properties.keys()):
        return f"only the driver may use {', '.join(found)}"
    if not properties.get("security.protocol", "").lower().startswith("sasl"):
        return None
    # librdkafka's own default is GSSAPI, which runs a command.
    named = {properties[key].upper() for key in ("sasl.mechanism", "sasl.mechanisms") if key in properties}
    if named and named <= set(OPERATOR_MECHANISMS):
        return None
    return f"only the driver may use SASL mechanism {', '.join(sorted(named)) or 'GSSAPI (the default)'}"


def for_operator(properties: Mapping[str, str]) -> dict[str, str]:
    """Return what the operator may load of properties that `why_driver_only` accepts: ALLOWED and nothing else.

    Raises ValueError when a property is refused, so that a caller that forgot to ask cannot load it.
    """
    refused: Iterable[str] = (found.key for found in problems(properties))
    if reason := why_driver_only(properties) or ", ".join(refused):
        raise ValueError(f"the operator must not load these Kafka properties: {reason}")
    return {key: value for key, value in properties.items() if key in ALLOWED}
