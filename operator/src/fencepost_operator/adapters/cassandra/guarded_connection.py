"""A connection to a Cassandra server that may send anything: tenants choose which servers the operator dials.

The driver trusts its server.  It waits for whatever size a frame announces, keeps a stream id for each answer without
a request, logs the bytes that it cannot decode, and follows nested types until the C stack ends, which ends the
process.  This connection closes itself instead: on a frame that is too large, on more answers at once than requests
can be in progress, on types, columns and rows that no table of the fence has.  It registers for no events, because the
operator dials contact points only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from io import BytesIO
from typing import Any, ClassVar, Final

from cassandra.cluster import DefaultConnection
from cassandra.connection import ConnectionException
from cassandra.cqltypes import ListType, MapType, SetType, TupleType, UserType
from cassandra.protocol import NotSupportedError, ProtocolHandler, ResultMessage

LARGEST_FRAME: Final = 10 * 1024 * 1024
"""Bytes of one answer.

The largest is a fence row: six maps of 6,000 partitions, with the longest names that Kafka allows, have 9.3 MiB.
"""
_AT_ONCE: Final = 256
"""Answers, or segments of them, in the bytes of one read; a session has a few requests in progress."""
_COLUMNS: Final = 1000
_ROWS: Final = 10_000
"""Of one answer: the columns of a table, the nodes of a cluster."""
_WORDS: Final = 300
"""Characters of an error that quotes what a server sent."""
_COLLECTIONS: Final = {ListType: 1, SetType: 1, MapType: 2}
"""How many types are inside."""
_ROWS_FOLLOW: Final = 2
"""The kind of a result that has rows."""


class _BoundedResult(ProtocolHandler.message_types_by_opcode[ResultMessage.opcode]):  # type: ignore[misc]
    """A result of plain types and collections of them, with as many columns and rows as the operator asks for."""

    @classmethod
    def read_type(cls, f: BytesIO, user_type_map: object) -> Any:  # noqa: ANN401 - the library is untyped
        """Return a column's type. Raises NotSupportedError for a nested, custom or user-defined one."""
        del user_type_map
        kind = cls._kind(f)
        if kind not in _COLLECTIONS:
            return kind
        inner = tuple(cls._kind(f) for _ in range(_COLLECTIONS[kind]))
        if any(each in _COLLECTIONS for each in inner):
            raise NotSupportedError("a collection inside a collection")
        return kind.apply_parameters(inner)

    @classmethod
    def _kind(cls, f: BytesIO) -> Any:  # noqa: ANN401
        (code,) = struct.unpack(">H", f.read(2))
        kind = cls.type_codes.get(code)
        if not code or kind is None or kind in {TupleType, UserType}:
            raise NotSupportedError(f"a column of type 0x{code:04x}")
        return kind

    def recv_results_metadata(self, f: BytesIO, user_type_map: object) -> None:
        """Read the columns, and look at the number of rows. Raises NotSupportedError."""
        _refuse_columns(f)
        super().recv_results_metadata(f, user_type_map)
        if self.kind == _ROWS_FOLLOW and (rows := _peek(f, 0)) > _ROWS:
            raise NotSupportedError(f"{rows} rows")

    def recv_prepared_metadata(self, f: BytesIO, protocol_version: int, user_type_map: object) -> None:
        """Read the parameters of a statement. Raises NotSupportedError."""
        _refuse_columns(f)
        super().recv_prepared_metadata(f, protocol_version, user_type_map)


class _BoundedProtocol(ProtocolHandler):  # type: ignore[misc]
    message_types_by_opcode: Final = {
        **ProtocolHandler.message_types_by_opcode,
        ResultMessage.opcode: _BoundedResult,
    }


class BoundedConnection(DefaultConnection):  # type: ignore[misc]
    """Closes itself, with a ConnectionException for all requests, on an answer that the operator has no use for."""

    largest_frame: ClassVar[int] = LARGEST_FRAME
    """Bytes of one answer."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - as the driver passes them
        self._answers = 0
        self._segments = 0
        options["compression"] = False  # an announced size would be allocated
        super().__init__(*arguments, **options)

    @property
    def _iobuf(self) -> Any:  # noqa: ANN401
        """The bytes that were received; a server that sends faster than they are read can make one read endless."""
        buffer = super()._iobuf
        if buffer.tell() > self.largest_frame:
            self.defunct(self._refusal(f"more than {self.largest_frame} bytes at once"))
        return buffer

    def process_io_buffer(self) -> None:
        """Take the complete answers out of what was received."""
        if self.is_defunct or self.is_closed:
            return
        self._answers = self._segments = 0
        try:
            super().process_io_buffer()
        except ConnectionException as error:
            self.defunct(error)
            return
        frame = self._current_frame
        if frame is not None and frame.end_pos > self.largest_frame:
            self.defunct(
                self._refusal(f"an answer of {frame.end_pos} bytes; more than {self.largest_frame} are not read")
            )
        elif len(self.request_ids) > self.max_request_id + 1:
            self.defunct(self._refusal("answers to requests that were not made"))

    def _process_segment_buffer(self) -> None:
        self._segments += 1
        self._check_open(self._segments)
        super()._process_segment_buffer()

    def process_msg(self, header: Any, body: bytes) -> None:  # noqa: ANN401
        """Pass one answer on. Raises ConnectionException."""
        self._answers += 1
        self._check_open(self._answers)
        if header.stream < 0:
            raise self._refusal("an event for which no client has registered")
        super().process_msg(header, body)

    def _check_open(self, count: int) -> None:
        """End the loop over what was received once the connection is closed, or when there is too much of it."""
        if self.is_defunct:
            raise self._refusal("it was closed")
        if count > _AT_ONCE:
            raise self._refusal(f"more than {_AT_ONCE} answers at once")

    def send_msg(
        self,
        msg: object,
        request_id: int,
        cb: Callable[..., object],
        encoder: Callable[..., bytes] = ProtocolHandler.encode_message,
        decoder: Callable[..., object] | None = None,
        result_metadata: object = None,
    ) -> int:
        """Send a request; its answer is decoded within the bounds, whichever decoder is asked for."""
        del decoder
        sent: int = super().send_msg(msg, request_id, cb, encoder, self._decode, result_metadata)
        return sent

    def register_watchers(self, type_callback_dict: object, register_timeout: float | None = None) -> None:
        """Register for no events."""

    def _decode(self, *arguments: Any) -> object:  # noqa: ANN401
        """Return the answer; in place of one that cannot be decoded, the error, which closes the connection.

        Raised, the driver would log it together with all bytes that were received.
        """
        try:
            return _BoundedProtocol.decode_message(*arguments)
        except Exception as error:  # noqa: BLE001 - the bytes are a tenant's, and the decoder is the driver's
            failure = self._refusal(f"an answer that cannot be decoded: {error!r}"[:_WORDS])
            self.defunct(failure)
            return failure

    def _refusal(self, what: str) -> ConnectionException:
        return ConnectionException(f"the server sent {what}", self.endpoint)


def _refuse_columns(f: BytesIO) -> None:
    if (columns := _peek(f, 4)) > _COLUMNS:  # after the flags
        raise NotSupportedError(f"{columns} columns")


def _peek(f: BytesIO, skipped: int) -> int:
    """Return the number that is `skipped` bytes ahead, and read nothing. Raises struct.error at the end."""
    at = f.tell()
    f.seek(skipped, 1)
    (number,) = struct.unpack(">i", f.read(4))
    f.seek(at)
    return int(number)
