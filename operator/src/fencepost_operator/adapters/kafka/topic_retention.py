"""A topic's retention, from the configuration that Kafka describes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from fencepost_operator.observation import Retention

_NUMBER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_LARGEST: Final = 2**63 - 1
_FOREVER: Final = timedelta(days=36_500)
"""A retention this long never ends; sums with it would not be dates any more."""


def retention_of(settings: Mapping[str, str | None]) -> Retention:
    """Return after what time and beyond what size a topic's records are deleted.

    A topic that is only compacted deletes none that a newer one does not replace.  Raises ValueError, naming the
    setting that is not what Kafka documents.
    """
    policy = settings.get("cleanup.policy")
    if policy is None:
        raise ValueError("cleanup.policy is missing")
    if "delete" not in {part.strip() for part in policy.split(",")}:
        return Retention()
    time, size = _number(settings, "retention.ms"), _number(settings, "retention.bytes")
    unlimited = time < 0 or time >= _FOREVER / timedelta(milliseconds=1)
    return Retention(
        time=None if unlimited else timedelta(milliseconds=time),
        size=None if size < 0 else size,
    )


def _number(settings: Mapping[str, str | None], name: str) -> int:
    text = settings.get(name) or ""
    if not _NUMBER.fullmatch(text) or int(text) > _LARGEST:
        raise ValueError(f"{name} is not a number")
    return int(text)
