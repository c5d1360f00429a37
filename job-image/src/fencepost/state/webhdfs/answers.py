"""Answers in the shapes that Hadoop's WebHDFS client reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

from fencepost.fence.errors import FenceError
from fencepost.state.directory import Entry
from fencepost.state.errors import (
    CheckpointDamaged,
    CheckpointFull,
    EpochOver,
    NameServiceUnavailable,
    PathInvalid,
    PathMissing,
    PathTaken,
    UploadUnknown,
)
from fencepost.state.webhdfs.authentication import NotAuthentic
from fencepost.state.webhdfs.http_server import Answer


class Unsupported(Exception):
    """An operation of WebHDFS that a checkpoint does not need."""


BLOCK_SIZE: Final = 128 * 1024 * 1024
"""Bytes; clients only report it."""

_FAILURES: Final[Mapping[type[Exception], tuple[HTTPStatus, str]]] = {
    NotAuthentic: (HTTPStatus.FORBIDDEN, "org.apache.hadoop.security.AccessControlException"),
    EpochOver: (HTTPStatus.FORBIDDEN, "org.apache.hadoop.security.AccessControlException"),
    PathInvalid: (HTTPStatus.FORBIDDEN, "java.io.IOException"),
    UploadUnknown: (HTTPStatus.FORBIDDEN, "java.io.IOException"),
    PathMissing: (HTTPStatus.NOT_FOUND, "java.io.FileNotFoundException"),
    PathTaken: (HTTPStatus.CONFLICT, "org.apache.hadoop.fs.FileAlreadyExistsException"),
    Unsupported: (HTTPStatus.BAD_REQUEST, "java.lang.UnsupportedOperationException"),
    CheckpointFull: (HTTPStatus.INSUFFICIENT_STORAGE, "java.io.IOException"),
    CheckpointDamaged: (HTTPStatus.INTERNAL_SERVER_ERROR, "java.io.IOException"),
    NameServiceUnavailable: (HTTPStatus.SERVICE_UNAVAILABLE, "java.io.IOException"),
    FenceError: (HTTPStatus.SERVICE_UNAVAILABLE, "java.io.IOException"),
}
"""The status and the Java class of each error. Spark takes FileAlreadyExistsException for another writer."""
FAILURES: Final = tuple(_FAILURES)


def as_json(value: Mapping[str, object]) -> Answer:
    """Answer with an object."""
    return Answer.of(HTTPStatus.OK, json.dumps(value).encode())


def boolean(value: bool) -> Answer:
    """Answer an operation that returns a boolean in Java."""
    return as_json({"boolean": value})


def done() -> Answer:
    """Answer an operation that returns nothing in Java."""
    return Answer.of(HTTPStatus.OK)


def failure(error: Exception) -> Answer:
    """Answer with an exception, which the client raises. Messages reach Spark's logs and pages: no secrets in them.

    Whoever is not authenticated loses the connection.
    """
    status, name = next(_FAILURES[kind] for kind in type(error).__mro__ if kind in _FAILURES)
    text = {"exception": name.rpartition(".")[2], "javaClassName": name, "message": str(error)}
    content = json.dumps({"RemoteException": text}).encode()
    return Answer.of(status, content, ends=isinstance(error, NotAuthentic))


def redirect(location: str) -> Answer:
    """Send the client to another address."""
    return Answer(status=HTTPStatus.TEMPORARY_REDIRECT, location=location)


def file_status(entry: Entry) -> Answer:
    """Answer with what is known of one file or directory."""
    return as_json({"FileStatus": _status(entry) | {"pathSuffix": ""}})


def listing(entries: Sequence[Entry]) -> Answer:
    """Answer with what is in a directory."""
    return as_json({"FileStatuses": {"FileStatus": [_status(entry) for entry in entries]}})


def _status(entry: Entry) -> dict[str, object]:
    is_file = not entry.is_directory
    return {
        "accessTime": 0,
        "blockSize": BLOCK_SIZE if is_file else 0,
        "childrenNum": 0,
        "fileId": 0,
        "group": "fencepost",
        "length": entry.length,
        "modificationTime": entry.modified,
        "owner": "fencepost",
        "pathSuffix": entry.name,
        "permission": "644" if is_file else "755",
        "replication": 1 if is_file else 0,
        "storagePolicy": 0,
        "type": "FILE" if is_file else "DIRECTORY",
    }
