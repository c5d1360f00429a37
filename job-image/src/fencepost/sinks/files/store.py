"""The store of a sink of files: a folder of a file system that all pods mount, or of an S3-compatible store."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import pyarrow as pa

from fencepost.contract import Reason
from fencepost.errors import DependencyDown

KEYS: Final[Mapping[str, str]] = {
    "AWS_ACCESS_KEY_ID": "access_key",
    "AWS_SECRET_ACCESS_KEY": "secret_key",
    "AWS_SESSION_TOKEN": "session_token",
}
"""Keys of the Secret, and the arguments of Arrow's client."""
_TOGETHER: Final = 16
"""Objects that are deleted at the same time."""


class Output(Protocol):
    """What a file is written to."""

    def write(self, data: bytes, /) -> object:
        """Write bytes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the files are, and how to connect: a task gets it. Without credentials the pod's own are used."""

    sink: str
    path: str
    endpoint: str | None = None
    region: str | None = None
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    patience: float = 30.0
    """Seconds that a request may take."""

    def open(self) -> Store:
        """Return the store. Raises DependencyDown where the bucket is not there."""
        parts = urlsplit(self.path)
        with self.reached():
            if parts.scheme == "file":
                return LocalStore(self, parts.path)
            return S3Store(self, parts.netloc + parts.path, self.client())

    def client(self) -> Any:  # noqa: ANN401 - the module is loaded where it is needed
        """Return Arrow's client of an S3-compatible store."""
        from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem  # noqa: PLC0415

        server = urlsplit(self.endpoint or "")
        arguments: dict[str, Any] = {KEYS[name]: value for name, value in self.credentials.items()}
        if server.netloc:
            arguments |= {"endpoint_override": server.netloc, "scheme": server.scheme}
        return S3FileSystem(
            **arguments,
            region=self.region or "us-east-1",
            request_timeout=self.patience,
            connect_timeout=min(self.patience, 10.0),
            retry_strategy=AwsStandardS3RetryStrategy(max_attempts=5),
            allow_delayed_open=True,
        )

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Raise DependencyDown for what the store refuses or does not answer."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise DependencyDown(
                f"sink {self.sink!r}: {self.path}: {error}",
                reason=Reason.SINK_UNREACHABLE,
                remedy="See whether the store answers, and whether the account may list, read, write and delete there.",
            ) from error


class Store(Protocol):
    """Files by their names below the path. Methods raise OSError or pa.ArrowException."""

    place: Place

    def list(self, folder: str) -> dict[str, int]:
        """Return the names of all files below a folder, and their sizes in bytes; empty without the folder."""
        ...

    def read(self, name: str) -> bytes:
        """Return a file's content."""
        ...

    def put(self, name: str, content: bytes) -> None:
        """Create a file whole, or leave what is there."""
        ...

    @contextmanager
    def writing(self, name: str) -> Iterator[Output]:
        """Create a file in the block; it is stored when the block ends."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; those that are not there are deleted already."""
        ...


class LocalStore:
    """A folder of a file system."""

    def __init__(self, place: Place, root: str) -> None:
        self.place = place
        self._root = Path(root)

    def list(self, folder: str) -> dict[str, int]:
        """Walk the folder."""
        found: dict[str, int] = {}
        for parent, _, names in os.walk(self._root / folder):
            for path in (Path(parent, name) for name in names if not name.startswith(".")):
                found[path.relative_to(self._root).as_posix()] = _size(path)
        return found

    def read(self, name: str) -> bytes:
        """Read the file."""
        return (self._root / name).read_bytes()

    def put(self, name: str, content: bytes) -> None:
        """Write another file, and rename it."""
        target = self._root / name
        draft = target.with_name(f".{target.name}-{uuid.uuid4().hex[:12]}")
        with self.writing(draft.relative_to(self._root).as_posix()) as file:
            file.write(content)
        draft.rename(target)
        _synchronize(target.parent)

    @contextmanager
    def writing(self, name: str) -> Iterator[Output]:
        """Write the file, and wait until the disk has it."""
        target = self._root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _synchronize(target.parent)

    def delete(self, names: Iterable[str]) -> None:
        """Delete the files; folders stay."""
        for name in names:
            (self._root / name).unlink(missing_ok=True)


class S3Store:
    """A prefix of a bucket. An object is there whole or not at all."""

    def __init__(self, place: Place, root: str, client: Any) -> None:  # noqa: ANN401
        from pyarrow.fs import FileSelector, FileType  # noqa: PLC0415

        self.place = place
        self._root, self._client = root, client
        self._selector, self._type = FileSelector, FileType
        bucket = root.partition("/")[0]
        if client.get_file_info(bucket).type == FileType.NotFound:
            raise DependencyDown(
                f"sink {place.sink!r}: {place.path}: bucket {bucket} does not exist",
                reason=Reason.SINK_NOT_FOUND,
                remedy="Create the bucket, or correct spec.sinks.",
            )

    def list(self, folder: str) -> dict[str, int]:
        """List the prefix."""
        selector = self._selector(f"{self._root}/{folder}", recursive=True, allow_not_found=True)
        found = self._client.get_file_info(selector)
        return {file.path[len(self._root) + 1 :]: file.size for file in found if file.type == self._type.File}

    def read(self, name: str) -> bytes:
        """Read the object."""
        with self._client.open_input_stream(f"{self._root}/{name}") as file:
            return bytes(file.read())

    def put(self, name: str, content: bytes) -> None:
        """Put the object."""
        with self.writing(name) as file:
            file.write(content)

    @contextmanager
    def writing(self, name: str) -> Iterator[Output]:
        """Upload the object, in parts where it is large."""
        with self._client.open_output_stream(f"{self._root}/{name}") as file:
            yield file

    def delete(self, names: Iterable[str]) -> None:
        """Delete the objects, several at the same time: each takes three requests."""
        with ThreadPoolExecutor(_TOGETHER) as threads:
            list(threads.map(self._delete, names))

    def _delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._client.delete_file(f"{self._root}/{name}")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # deleted meanwhile
        return 0


def _synchronize(folder: Path) -> None:
    """Wait until the disk has a folder's entries."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
