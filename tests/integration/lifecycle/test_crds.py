"""The operator's chart upgrades the CRDs, and an operator that is newer than the CRDs waits for them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from fencepost_operator.api import GROUP, PLURAL
from harness.waiting import eventually
from integration.lifecycle.operators import CHART, WATCHING, Installed

pytestmark = pytest.mark.integration


def test_an_operator_waits_for_newer_crds_and_the_charts_upgrade_brings_them(
    installed: Installed, tmp_path: Path
) -> None:
    """Injected: the installed chart is of an older release, whose CRD lacks a field of the status."""
    installed.upgrade(chart=older_chart(tmp_path))
    try:
        with installed.operator(until="is older than the operator: it lacks status.durability") as log:
            assert WATCHING not in log.read_text()
            installed.upgrade()
            eventually("the operator starts", lambda: WATCHING in log.read_text(), seconds=90)
    finally:
        installed.upgrade()


def older_chart(folder: Path) -> Path:
    chart = shutil.copytree(CHART, folder / "fencepost")
    file = chart / "files" / "crds" / f"{PLURAL}.{GROUP}.yaml"
    crd = yaml.safe_load(file.read_text())
    del crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["durability"]
    file.write_text(yaml.safe_dump(crd))
    return chart
