"""Snapshots as a database returns them: any client with the account may have written others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from fencepost.fence.sealed_epochs import unsealed
from fencepost.fence.snapshots import Snapshot
from fencepost.fence.stored_rows import is_checkpoint

_LARGEST: Final = 2**63 - 1


def is_sound(found: Any) -> bool:  # noqa: ANN401 - a driver's named tuple
    """Return whether every fact has the type of its column: a server that a tenant runs sends anything."""
    texts = [getattr(found, name, None) for name in ("reason", "name", "code")]
    numbers = [found.epoch or 0, found.version or 0]
    return (
        isinstance(found.id, UUID)
        and is_checkpoint(getattr(found, "checkpoint", None))
        and all(isinstance(text, str | None) for text in texts)
        and all(isinstance(number, int) and 0 <= number <= _LARGEST for number in numbers)
    )


def snapshot(found: Any) -> Snapshot:  # noqa: ANN401 - a driver's named tuple
    """Return the snapshot in a row that `is_sound`; a column that was not read has its default."""
    offsets, topic_ids = _map(found, "offsets"), _map(found, "topic_ids")
    return Snapshot(
        id=found.id,
        trigger=found.reason or "",
        name=getattr(found, "name", None),
        epoch=found.epoch or 0,
        version=found.version or 0,
        code=getattr(found, "code", None),
        offsets=offsets,
        topic_ids=topic_ids,
        leader_epochs=unsealed(_map(found, "leader_epochs"), offsets, topic_ids),
        growth_barrier=_map(found, "growth_barrier"),
        checkpoint=getattr(found, "checkpoint", None),
    )


def _map(found: Any, name: str) -> dict[str, Any]:  # noqa: ANN401 - a driver's named tuple
    value = getattr(found, name, None)
    return dict(value.items()) if isinstance(value, Mapping) else {}
