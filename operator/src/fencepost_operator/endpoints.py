"""Which endpoints the operator may dial: a pure rule over names, addresses and ports.

An endpoint is written as `host:port`.  The host is a DNS name, `*.` and a domain, an address or a network
(`10.0.0.0/8`); an IPv6 host stands in brackets.  The port is a number or `*`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_PATTERN: Final = re.compile(r"(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:\[\]]+)):(?P<port>\*|[0-9]{1,5})", re.ASCII)
_NAME: Final = re.compile(r"(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_LAST_PORT: Final = 65535
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""Followed by an IPv4 address, to which a gateway leads (RFC 6052)."""
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
_LOCAL_NAT64: Final = ipaddress.IPv6Network("64:ff9b:1::/48")
"""The same, but where in it the IPv4 address is, only its gateway knows (RFC 8215)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedEndpoint:
    """One entry: a name or a network, and a port; port None means every port."""

    name: str | None
    network: Network | None
    port: int | None

    def __str__(self) -> str:
        """The entry as it is written."""
        host = self.name if self.network is None else str(self.network)
        port = "*" if self.port is None else str(self.port)
        return f"[{host}]:{port}" if isinstance(self.network, ipaddress.IPv6Network) else f"{host}:{port}"

    def covers_name(self, name: str, port: int) -> bool:
        """Return whether the entry names this host and port."""
        if self.name is None or self.port not in {None, port}:
            return False
        plain = name.lower().removesuffix(".")
        return plain.endswith(self.name[1:]) if self.name.startswith("*.") else plain == self.name

    def covers_address(self, address: Address, port: int) -> bool:
        """Return whether the address is in the entry's network, and the port is the entry's."""
        return self.network is not None and self.port in {None, port} and address in self.network

    @property
    def is_explicit(self) -> bool:
        """Return whether the entry names one address, or loopback, link-local or multicast addresses alone.

        A wide network, such as 0.0.0.0/0, does not mean those.
        """
        network = self.network
        return network is not None and (
            network.num_addresses == 1 or network.is_loopback or network.is_link_local or network.is_multicast
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPolicy:
    """The operator's allow-list.  Without entries every endpoint is allowed.

    `reserved` are addresses that only an explicit entry allows: the API server's.  The same holds for loopback,
    link-local (with cloud metadata services), multicast and unspecified addresses.
    """

    entries: tuple[AllowedEndpoint, ...] = ()
    reserved: frozenset[Address] = frozenset()
    guards: bool = False
    """Whether those addresses are refused without entries as well."""

    @property
    def restricts(self) -> bool:
        """Return whether there is anything to check."""
        return bool(self.entries)

    def allows(self, name: str, address: str, port: int) -> bool:
        """Return whether `name`, which resolved to `address`, may be dialled at the port."""
        if not self.restricts and not self.guards:
            return True
        found = parse_address(address)
        if found is None:
            return False
        if not self.restricts:
            return not self._is_special(found)
        if self._is_special(found):
            return any(entry.is_explicit and entry.covers_address(found, port) for entry in self.entries)
        return any(entry.covers_address(found, port) or entry.covers_name(name, port) for entry in self.entries)

    def _is_special(self, address: Address) -> bool:
        return (
            address in self.reserved
            or address.is_loopback
            or address.is_link_local
            or address.is_multicast
            or address.is_unspecified
            or address in _LOCAL_NAT64
        )


def parse_address(text: str) -> Address | None:
    """Return the address that a text is, an IPv4 address where IPv6 only wraps one; None for anything else."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return _inner(address) if isinstance(address, ipaddress.IPv6Address) else address


def _inner(address: ipaddress.IPv6Address) -> Address:
    """Return the IPv4 address that an IPv6 address leads to, or the address."""
    is_compatible = address in _COMPATIBLE and not address.is_unspecified and not address.is_loopback
    if address in _NAT64 or is_compatible:
        return ipaddress.IPv4Address(address.packed[-4:])
    return address.ipv4_mapped or address.sixtofour or address


def parse_entries(texts: Iterable[str]) -> tuple[AllowedEndpoint, ...]:
    """Return the entries of an allow-list. Raises ValueError, naming the first entry that is wrong."""
    return tuple(_entry(text.strip()) for text in texts if text.strip())


def _entry(text: str) -> AllowedEndpoint:
    match = _PATTERN.fullmatch(text)
    if match is None or (match["port"] != "*" and not 1 <= int(match["port"]) <= _LAST_PORT):
        raise ValueError(f"{text!r} is not an endpoint; write host:port, such as kafka.example:9092 or 10.0.0.0/8:*")
    host, port = match["six"] or match["host"], None if match["port"] == "*" else int(match["port"])
    try:
        return AllowedEndpoint(name=None, network=ipaddress.ip_network(host), port=port)
    except ValueError:
        if match["six"] is not None or not _NAME.fullmatch(host.lower()) or re.fullmatch(r"[0-9.]+", host):
            raise ValueError(f"{host!r} in {text!r} is neither a DNS name, an address nor a network") from None
    return AllowedEndpoint(name=host.lower(), network=None, port=port)
