"""What fails once fails again."""

from __future__ import annotations

import random

import pytest


@pytest.fixture(autouse=True)
def the_same_jitter_each_time() -> None:
    """Waits are spread by the global generator; the histories have their own, each with its seed."""
    random.seed(0)
