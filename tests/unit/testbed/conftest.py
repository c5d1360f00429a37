from __future__ import annotations

from pathlib import Path

import pytest

from testbed.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.prepare()
    return home
