"""Spark's metadata of an operator: it names other files by the location that the checkpoint had at that time.

For transformWithState these are the schemas of its state, which the next run compares with those of its code.  That run
serves the checkpoint at a location of its own, so it reads the names as they are there.
"""

from __future__ import annotations

import re
from typing import Final

_METADATA: Final = re.compile(r"state/[0-9]+/_metadata/v2/[0-9]+")
_LOCATION: Final = re.compile(rb'(?<=")webhdfs://[^/"]+/e[0-9]+(?=/)')
"""See `NameService.location`."""
LARGEST: Final = 16 * 1024 * 1024
"""Bytes. Metadata is changed in memory, also in that of a command that reads a tenant's state; Spark's has some KB."""


def is_metadata(path: str, length: int) -> bool:
    """Return whether the file at a path, of so many bytes, may name others by their location."""
    return length <= LARGEST and bool(_METADATA.fullmatch(path))


def relocated(content: bytes, location: str) -> bytes:
    """Return the metadata with its files at this location of the checkpoint."""
    return _LOCATION.sub(lambda _: location.encode(), content)
