"""The files of a checkpoint that a commit makes visible, as a value; and the value as bytes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from fencepost.state.chunks import CHUNK
from fencepost.state.errors import CheckpointDamaged

LARGEST: Final = 64 * 1024 * 1024
"""Bytes that a packed tree has at most when it is unpacked."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A complete file: its chunks are under `id`. `length` in bytes, `modified` in ms since 1970."""

    id: UUID
    length: int
    modified: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Files by path, as 'state/0/1/7_a.changelog', and the directories that were made, which may be empty."""

    files: Mapping[str, StoredFile] = field(default_factory=dict)
    directories: frozenset[str] = frozenset()

    @property
    def ids(self) -> frozenset[UUID]:
        """The ids of all files."""
        return frozenset(file.id for file in self.files.values())

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.length for file in self.files.values())

    @property
    def chunks(self) -> int:
        """How many chunks all files have."""
        return sum(-(-file.length // CHUNK) for file in self.files.values())

    def pack(self) -> bytes:
        """Return the tree as bytes; equal trees have equal bytes."""
        by_directory: dict[str, dict[str, list[object]]] = {}
        for path, file in sorted(self.files.items()):
            directory, _, name = path.rpartition("/")
            by_directory.setdefault(directory, {})[name] = [file.id.hex, file.length, file.modified]
        content = {"files": by_directory, "directories": sorted(self.directories)}
        return zlib.compress(json.dumps(content, separators=(",", ":")).encode(), 1)


def unpack(packed: bytes, most: int = LARGEST) -> Tree:
    """Return the tree that was packed, of at most `most` bytes. Raises CheckpointDamaged."""
    content = unpacked(packed, most)
    try:
        files = {
            f"{directory}/{name}" if directory else name: StoredFile(UUID(hex=id), int(length), int(modified))
            for directory, names in content["files"].items()
            for name, (id, length, modified) in names.items()  # noqa: A001 - the field's name
        }
        return Tree(files=files, directories=frozenset(map(str, content["directories"])))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointDamaged(f"a packed tree is unreadable ({error!r})") from error


def unpacked(packed: bytes, most: int) -> dict[str, Any]:
    """Return the JSON object in compressed bytes, at most `most` bytes of it. Raises CheckpointDamaged."""
    inflating = zlib.decompressobj()
    try:
        text = inflating.decompress(packed, most)
        if not inflating.eof:
            raise CheckpointDamaged(f"a value of the checkpoint is cut, or has more than {most} bytes")
        content = json.loads(text)
    except (zlib.error, ValueError) as error:
        raise CheckpointDamaged(f"a value of the checkpoint is unreadable ({error})") from error
    if not isinstance(content, dict):
        raise CheckpointDamaged("a value of the checkpoint is not an object")
    return content
