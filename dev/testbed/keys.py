"""Content keys: the name of a result is the hash of everything it was made from."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from testbed.process import probe

KEY_LENGTH: Final = 16
"""Hex digits of SHA-256 kept: 64 bits, short enough for an image tag and a label."""


def content_key(parts: Mapping[str, str]) -> str:
    """The key of named inputs; the order they are given in does not matter.

    Names and values are length-prefixed, so that no two different sets of inputs run into the same bytes.
    """
    digest = hashlib.sha256()
    for name, value in sorted(parts.items()):
        for text in (name, value):
            encoded = text.encode()
            digest.update(f"{len(encoded)}:".encode() + encoded)
    return digest.hexdigest()[:KEY_LENGTH]


def files_key(root: Path, files: Iterable[Path]) -> str:
    """The key of files: their paths below `root`, their execute bits and their bytes."""
    parts: dict[str, str] = {}
    for file in files:
        executable = "x" if file.stat().st_mode & 0o100 else "-"
        parts[file.relative_to(root).as_posix()] = executable + hashlib.sha256(file.read_bytes()).hexdigest()
    return content_key(parts)


def folder_files(folder: Path) -> list[Path]:
    """Every file below `folder` except what Python leaves there, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def source_files(repository: Path, paths: Iterable[str]) -> list[Path]:
    """The files of `paths` that git tracks or would track (ignored ones left out), sorted.

    Without git (a release archive, say) every file below the paths counts.
    """
    wanted = [path for path in paths if (repository / path).exists()]
    if not wanted:
        return []
    listing = probe(
        ["git", "-C", str(repository), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *wanted]
    )
    if listing is None:
        found = [
            file
            for path in wanted
            for file in (folder_files(repository / path) if (repository / path).is_dir() else [repository / path])
        ]
    else:
        found = [repository / name for name in listing.split("\0") if name]
    return sorted({file for file in found if file.is_file()})
