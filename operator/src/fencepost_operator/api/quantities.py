"""Kubernetes' notations: durations such as 1m30s, quantities such as 512Mi or 500m."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

import durationpy

DURATION: Final = re.compile("([0-9]+([.][0-9]+)?(ms|s|m|h))+")

QUANTITY: Final = re.compile(r"\+?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
FACTORS: Final = {
    **{prefix + "i": Decimal(1024) ** power for power, prefix in enumerate("KMGTPE", 1)},
    **{prefix: Decimal(1000) ** power for power, prefix in enumerate("kMGTPE", 1)},
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
}
MEBIBYTE: Final = 1024 * 1024
_LONGEST: Final = 64
"""Characters of a quantity or a duration; the CRD allows 20."""
_LONGEST_DURATION: Final = 10 * 365 * 24 * 3600.0
"""Seconds. Python cannot represent the sum of a time and a much longer duration."""
_LARGEST_EXPONENT: Final = 18
_LIMIT: Final = 2**63
"""Kubernetes holds a quantity in 64 bits. The integer of a larger one may take minutes to compute."""


def parse_duration(text: str) -> float:
    """Return seconds of a duration such as '1m30s'. Raises ValueError when it is not one."""
    if len(text) > _LONGEST or not DURATION.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a duration such as 500ms, 5s or 1m30s")
    try:
        seconds = float(durationpy.from_str(text).total_seconds())
    except OverflowError:
        seconds = math.inf
    if seconds > _LONGEST_DURATION:
        raise ValueError(f"{text[:40]!r} is not a duration of at most ten years")
    return seconds


def duration_text(seconds: float) -> str:
    """Return seconds as a duration in the largest unit without a fraction: '90s', '5m', '720h'; ms rounded."""
    milliseconds = round(seconds * 1000)
    unit, size = next((unit, size) for unit, size in _UNITS.items() if milliseconds % size == 0)
    return f"{milliseconds // size}{unit}" if milliseconds else "0s"


_UNITS: Final = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
"""Milliseconds."""


def parse_quantity(value: str | float) -> Decimal:
    """Return the number of a quantity such as '512Mi', '500m' or 2.

    Raises ValueError when it is not one, or is too large for Kubernetes.
    """
    text = str(value)
    match = QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a quantity such as 512Mi, 2Gi or 500m")
    number = Decimal(match[1]) * _factor(match[2] or "")
    if number >= _LIMIT:
        raise ValueError(f"{text[:40]!r} is not a quantity of less than 2^63")
    return number


def _factor(suffix: str) -> Decimal:
    """Return what a suffix multiplies by. Raises ValueError for an exponent that no quantity needs."""
    if suffix in FACTORS:
        return FACTORS[suffix]
    exponent = int(suffix[1:])
    if abs(exponent) > _LARGEST_EXPONENT:
        raise ValueError(f"is not a quantity with an exponent from -{_LARGEST_EXPONENT} to {_LARGEST_EXPONENT}")
    return Decimal(10) ** exponent


def parse_bytes(value: str | float) -> int:
    """Return whole bytes of a quantity. Raises ValueError when it is not one."""
    return int(parse_quantity(value))


def bytes_text(size: int) -> str:
    """Return bytes as a quantity in the largest unit without a fraction: '1536Mi', '2Gi'."""
    power = next(power for power in range(6, -1, -1) if size % 1024**power == 0)
    return f"{size // 1024**power}{' KMGTPE'[power]}i" if power and size else str(size)


def mebibytes(size: int) -> str:
    """Return bytes in Kubernetes' notation, whole mebibytes rounded down: '512Mi'."""
    return f"{size // MEBIBYTE}Mi"


def jvm_memory(size: int) -> str:
    """Return bytes in the notation of Java and Spark, whole mebibytes rounded down: '512m'."""
    return f"{size // MEBIBYTE}m"


def format_duration(seconds: float) -> str:
    """Return seconds as people read them: '45 s', '5 min', '1 h 30 min'."""
    whole = max(0, round(seconds))
    if whole < 60:  # noqa: PLR2004 - a minute
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:  # noqa: PLR2004 - an hour
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
