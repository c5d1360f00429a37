"""One pipeline for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.cli.scene import Scene, played
from testbed.environment import load


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """A pipeline that committed two batches of two partitions, with a row in its table for each record."""
    with played(load()) as scene:
        yield scene
