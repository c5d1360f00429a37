"""A directory in memory: files by name, as a Hadoop file system shows them. One thread at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from fencepost.state.errors import CheckpointFull, PathInvalid, PathMissing, PathTaken
from fencepost.state.tree import StoredFile, Tree

LONGEST_PATH: Final = 1024
MOST_ENTRIES: Final = 200_000
"""Files and directories: two state stores of 1,000 partitions with a hundred files each."""
_NAME: Final = re.compile(r"(?!\.{1,2}$)[^/\x00-\x1f\x7f]{1,255}")


@dataclass(frozen=True, slots=True)
class LogFile:
    """A small file that is kept as a whole. `modified` in ms since 1970."""

    content: bytes
    modified: int

    @property
    def length(self) -> int:
        """Bytes."""
        return len(self.content)


@dataclass(frozen=True, slots=True)
class Entry:
    """What a listing shows of a file or a directory: its length in bytes (0), and when it changed, in ms (0)."""

    name: str
    is_directory: bool
    length: int = 0
    modified: int = 0


Folder = dict[str, "Node"]
Node = StoredFile | LogFile | Folder


class Directory:
    """A root and what is in it. A path has no slash at its ends; the root's is empty."""

    def __init__(self, tree: Tree | None = None) -> None:
        self._root: Folder = {}
        self._size = 0
        tree = tree or Tree()
        for path in tree.directories:
            self.make(path)
        for path, file in tree.files.items():
            self.put(path, file)

    @property
    def tree(self) -> Tree:
        """The files that are in chunks, and all directories."""
        nodes = dict(_walk("", self._root))
        return Tree(
            files={path: node for path, node in nodes.items() if isinstance(node, StoredFile)},
            directories=frozenset(path for path, node in nodes.items() if isinstance(node, dict)),
        )

    @property
    def newest(self) -> int:
        """When the newest file was modified, in ms; 0 without files."""
        return max((node.modified for _, node in _walk("", self._root) if not isinstance(node, dict)), default=0)

    def find(self, path: str) -> Node | None:
        """Return what is at the path, or None. Raises PathInvalid."""
        node: Node = self._root
        for name in names(path):
            if not isinstance(node, dict) or name not in node:
                return None
            node = node[name]
        return node

    def file(self, path: str) -> StoredFile | LogFile:
        """Return the file at the path. Raises PathMissing, PathInvalid for a directory."""
        found = self.find(path)
        if found is None:
            raise PathMissing(path)
        if isinstance(found, dict):
            raise PathInvalid(f"{path!r} is a directory")
        return found

    def status(self, path: str) -> Entry:
        """Return the entry of one path, under its last name. Raises PathMissing, PathInvalid."""
        found = self.find(path)
        if found is None:
            raise PathMissing(path)
        return _entry(path.rpartition("/")[2], found)

    def entries(self, path: str) -> tuple[Entry, ...]:
        """Return what is in a directory, by name; of a file its own entry, without a name. Raises as `status` does."""
        found = self.find(path)
        if found is None:
            raise PathMissing(path)
        if not isinstance(found, dict):
            return (_entry("", found),)
        return tuple(_entry(name, node) for name, node in sorted(found.items()))

    def make(self, path: str) -> None:
        """Make a directory and those above it. Raises PathTaken where one is a file, PathInvalid, CheckpointFull."""
        self._folder(names(path))

    def put(self, path: str, file: StoredFile | LogFile, *, overwrite: bool = False) -> None:
        """Place a file, and make the directories above it. Raises PathTaken, PathInvalid, CheckpointFull."""
        self.check_free(path, overwrite=overwrite)
        *above, name = names(path)
        folder = self._folder(above)
        self._grow(name not in folder)
        folder[name] = file

    def check_free(self, path: str, *, overwrite: bool) -> None:
        """Raise PathTaken where a file cannot be placed at the path, PathInvalid."""
        found = self.find(path)
        if isinstance(found, dict) or (found is not None and not overwrite):
            raise PathTaken(path)

    def remove(self, path: str) -> bool:
        """Remove a file, or a directory with all that is in it; return whether it was there. Raises PathInvalid."""
        *above, name = names(path) or ("",)
        folder = self.find("/".join(above))
        if not isinstance(folder, dict) or name not in folder:
            return False
        gone = folder.pop(name)
        self._size -= 1 + (sum(1 for _ in _walk("", gone)) if isinstance(gone, dict) else 0)
        return True

    def _folder(self, path: list[str]) -> Folder:
        folder = self._root
        for name in path:
            self._grow(name not in folder)
            below = folder.setdefault(name, {})
            if not isinstance(below, dict):
                raise PathTaken("/".join(path))
            folder = below
        return folder

    def _grow(self, is_new: bool) -> None:
        if is_new and self._size >= MOST_ENTRIES:
            raise CheckpointFull(f"the checkpoint has {MOST_ENTRIES} files and directories")
        self._size += is_new


def names(path: str) -> list[str]:
    """Return the names of a path; none for the root. Raises PathInvalid."""
    if path == "":
        return []
    found = path.split("/")
    if len(path) > LONGEST_PATH or not all(_NAME.fullmatch(name) for name in found):
        raise PathInvalid(f"{path[:LONGEST_PATH]!r} is not a path of a checkpoint")
    return found


def _walk(path: str, folder: Folder) -> Iterator[tuple[str, Node]]:
    for name, node in folder.items():
        below = f"{path}/{name}" if path else name
        yield below, node
        if isinstance(node, dict):
            yield from _walk(below, node)


def _entry(name: str, node: Node) -> Entry:
    if isinstance(node, dict):
        return Entry(name, is_directory=True)
    return Entry(name, is_directory=False, length=node.length, modified=node.modified)
