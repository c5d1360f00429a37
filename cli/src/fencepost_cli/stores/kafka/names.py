"""librdkafka's look-up of names, answered here: for Kafka's listeners whose names this machine cannot look up.

librdkafka asks `resolve_cb` in place of getaddrinfo, for its bootstrap servers and for the brokers that Kafka names. It
still checks certificates for the name. confluent-kafka has no setting for it, so it is set by the C function, on the
handle in the client's object. No address is looked up before: the servers are added after it.
"""

from __future__ import annotations

import ctypes
import re
import socket
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, TypeVar

from confluent_kafka import cimpl

from fencepost_cli.errors import CliError
from fencepost_cli.ports import Dial

T = TypeVar("T")

_SERVER: Final = re.compile(r"(\w+://)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+)(:(?P<port>[0-9]{1,5}))?")
_USUAL_PORT: Final = 9092
_RESOLVE: Final = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)
"""int resolve_cb(node, service, hints, result, opaque); without a node and a service, it frees the result."""


def client_of(make: Callable[[dict[str, Any]], T], settings: Mapping[str, Any], dial: Dial) -> T:
    """Return a client whose connections go where `dial` says.

    A name for which `dial` raises has no address. Raises RuntimeError where the installed confluent-kafka keeps its
    handle elsewhere.
    """
    own = {key: value for key, value in settings.items() if key != "bootstrap.servers"}
    # Names are asked again when all brokers are lost, and that takes the setting.
    client = make({**own, "metadata.recovery.strategy": "none"})
    library, system = _libraries()
    handle = ctypes.c_void_p.from_address(id(client) + object.__basicsize__).value
    if handle is None or library.rd_kafka_opaque(handle) != id(client):
        raise RuntimeError("this version of confluent-kafka keeps its handle elsewhere")
    callback = _RESOLVE(_resolver(dial, system))
    _callbacks.append(callback)
    library.rd_kafka_conf_set_resolve_cb(library.rd_kafka_conf(handle), callback)
    library.rd_kafka_brokers_add(handle, str(settings["bootstrap.servers"]).encode())
    return client


def servers_of(text: str) -> list[tuple[str, int]]:
    """Return the hosts and ports of `bootstrap.servers`, such as 'a:9092,SSL://[::1]:9093,c'. Raises CliError."""
    found = []
    for server in text.split(","):
        parts = _SERVER.fullmatch(server.strip())
        if parts is None:
            raise CliError(f"{server!r} is not the address of a Kafka server", remedy="write HOST:PORT,HOST:PORT")
        found.append((parts["host"].strip("[]"), int(parts["port"] or _USUAL_PORT)))
    return found


def _resolver(dial: Dial, system: ctypes.CDLL) -> Callable[[bytes | None, bytes | None, Any, Any, Any], int]:
    def resolve(node: bytes | None, service: bytes | None, hints: Any, result: Any, _opaque: Any) -> int:  # noqa: ANN401 - C pointers
        if node is None and service is None:
            system.freeaddrinfo(result[0])
            return 0
        try:
            host, port = dial((node or b"").decode(), int(service or b""))
        except Exception:  # noqa: BLE001 - an exception cannot pass through C, and says here that the name has no address
            return int(socket.EAI_NONAME)
        return int(system.getaddrinfo(host.encode(), str(port).encode(), hints, result))

    return resolve


@cache
def _libraries() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """Return librdkafka as confluent-kafka has loaded it, and the C library, with the types of what is called."""
    library, system = ctypes.CDLL(cimpl.__file__), ctypes.CDLL(None)
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    types: tuple[tuple[Any, Any, list[Any]], ...] = (
        (library.rd_kafka_opaque, pointer, [pointer]),
        (library.rd_kafka_conf, pointer, [pointer]),
        (library.rd_kafka_conf_set_resolve_cb, None, [pointer, _RESOLVE]),
        (library.rd_kafka_brokers_add, ctypes.c_int, [pointer, text]),
        (system.getaddrinfo, ctypes.c_int, [text, text, pointer, ctypes.POINTER(pointer)]),
        (system.freeaddrinfo, None, [pointer]),
    )
    for function, result, parameters in types:
        function.restype, function.argtypes = result, parameters
    return library, system


_callbacks: Final = list[Any]()
"""librdkafka may ask until the process ends."""
