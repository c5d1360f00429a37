"""A cluster without nodes in which the operator's chart is installed, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.kubernetes.control_plane import control_plane
from integration.lifecycle.operators import Installed
from testbed.environment import Environment, NotUpError, load


@pytest.fixture(scope="package")
def environment() -> Environment:
    try:
        return load()
    except NotUpError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="package")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    with control_plane() as plane:
        yield Installed.by_helm(plane, tmp_path_factory.mktemp("operators"))
