"""A producer that names headers in bytes, by librdkafka's C API: confluent_kafka's own takes text alone."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import confluent_kafka

_LIBRARY: Final = next(Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs").glob("librdkafka*"))
_TOPIC, _PARTITION, _VALUE, _KEY, _FLAGS, _HEADERS = 1, 3, 4, 5, 7, 10
"""Kinds of arguments of rd_kafka_producev (rd_kafka_vtype_t)."""
_COPY: Final = 2


class RawProducer:
    """Produces to `servers`. Keep it while its records are read from a mock cluster: that ends with `close`."""

    def __init__(self, servers: str | None = None) -> None:
        """Start a producer; without `servers`, for a mock cluster of librdkafka's own, of one broker."""
        library = ctypes.CDLL(str(_LIBRARY))
        self._library: Any = library
        for name, restype, argtypes in _SIGNATURES:
            function = getattr(library, name)
            function.restype, function.argtypes = restype, argtypes
        message = ctypes.create_string_buffer(512)
        configuration = library.rd_kafka_conf_new()
        settings = {"test.mock.num.brokers": "1"} if servers is None else {"bootstrap.servers": servers}
        for name, value in {**settings, "log_level": "0"}.items():
            assert not library.rd_kafka_conf_set(configuration, name.encode(), value.encode(), message, 512)
        self._client = library.rd_kafka_new(0, configuration, message, 512)
        assert self._client, message.value
        self.servers = servers or self._mock_servers()

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic of the mock cluster."""
        cluster = self._library.rd_kafka_handle_mock_cluster(self._client)
        assert not self._library.rd_kafka_mock_topic_create(cluster, name.encode(), partitions, 1)

    def produce(
        self,
        topic: str,
        value: bytes,
        headers: Sequence[tuple[bytes, bytes | None]],
        *,
        partition: int = 0,
        key: bytes = b"",
    ) -> None:
        """Append a record, and wait until it is there."""
        given = self._library.rd_kafka_headers_new(len(headers))
        for name, content in headers:
            size = -1 if content is None else len(content)
            assert not self._library.rd_kafka_header_add(given, name, len(name), content, max(size, 0))
        failure = self._library.rd_kafka_producev(
            ctypes.c_void_p(self._client),
            ctypes.c_int(_TOPIC), ctypes.c_char_p(topic.encode()),
            ctypes.c_int(_PARTITION), ctypes.c_int32(partition),
            ctypes.c_int(_VALUE), ctypes.c_char_p(value), ctypes.c_size_t(len(value)),
            ctypes.c_int(_KEY), ctypes.c_char_p(key), ctypes.c_size_t(len(key)),
            ctypes.c_int(_FLAGS), ctypes.c_int(_COPY),
            ctypes.c_int(_HEADERS), ctypes.c_void_p(given),
            ctypes.c_int(0),
        )  # fmt: skip
        assert not failure
        assert not self._library.rd_kafka_flush(self._client, 60_000)

    def close(self) -> None:
        """End the producer, and its mock cluster."""
        self._library.rd_kafka_destroy(self._client)

    def _mock_servers(self) -> str:
        cluster = self._library.rd_kafka_handle_mock_cluster(self._client)
        servers: bytes = self._library.rd_kafka_mock_cluster_bootstraps(cluster)
        return servers.decode()


_SIGNATURES: Final[Sequence[tuple[str, Any, Any]]] = (
    ("rd_kafka_conf_new", ctypes.c_void_p, []),
    (
        "rd_kafka_conf_set",
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t],
    ),
    ("rd_kafka_new", ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]),
    ("rd_kafka_handle_mock_cluster", ctypes.c_void_p, [ctypes.c_void_p]),
    ("rd_kafka_mock_cluster_bootstraps", ctypes.c_char_p, [ctypes.c_void_p]),
    ("rd_kafka_mock_topic_create", ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]),
    ("rd_kafka_headers_new", ctypes.c_void_p, [ctypes.c_size_t]),
    (
        "rd_kafka_header_add",
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_ssize_t, ctypes.c_char_p, ctypes.c_ssize_t],
    ),
    ("rd_kafka_producev", ctypes.c_int, None),
    ("rd_kafka_flush", ctypes.c_int, [ctypes.c_void_p, ctypes.c_int]),
    ("rd_kafka_destroy", None, [ctypes.c_void_p]),
)
