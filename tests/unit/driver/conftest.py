from __future__ import annotations

import pytest

from unit.driver.loop_world import World


@pytest.fixture
def world() -> World:
    return World()
