"""docs/metrics.md and the dashboards are what the code makes now, and name only metrics that are served."""

from __future__ import annotations

import re

from generators import dashboards, metrics
from generators.panels import BOARDS
from generators.reference import ROOT

SERVED = {each.name for each in (*metrics.operator(), *metrics.driver(), *metrics.worker())}
NAME = re.compile(r"\b(?:fencepost|jvm)_[a-z_]+[a-z]")
SUFFIXES = ("_bucket", "_sum", "_count")


def unknown(text: str) -> set[str]:
    """Return the names of metrics in a text that are not served."""
    found = {name for name in NAME.findall(text) if name not in {"fencepost_operator", "fencepost_fence"}}
    return {name for name in found if name not in SERVED and re.sub("|".join(SUFFIXES), "", name) not in SERVED}


def test_the_page_is_what_the_code_serves() -> None:
    assert metrics.FILE.read_text() == metrics.page(), "run `make reference`"


def test_the_dashboards_are_what_the_generator_makes() -> None:
    written = {path: path.read_text() for path in dashboards.FOLDER.glob("*.json")}
    assert written == dashboards.files(), "run `make reference`"


def test_dashboards_and_alerts_ask_for_metrics_that_are_served() -> None:
    queries = [
        query for board in BOARDS for panels in board.rows.values() for panel in panels for query in panel.queries
    ]
    assert unknown("\n".join(queries)) == set()
    rules = (ROOT / "charts/fencepost/templates/prometheusrule.yaml").read_text()
    assert unknown(rules) == set()


def test_each_metric_says_what_it_is() -> None:
    for each in (*metrics.operator(), *metrics.driver(), *metrics.worker()):
        assert each.words.endswith("."), each
        assert "|" not in each.words
        assert each.kind in {"counter", "gauge", "histogram", "summary"}


def test_the_page_shows_each_dashboard() -> None:
    assert all(f"](metrics/{board.name}.png)" in metrics.HEAD for board in BOARDS)
    sizes = {path.name: path.stat().st_size for path in (ROOT / "docs/metrics").glob("*.png")}
    assert {f"{board.name}.png" for board in BOARDS} <= sizes.keys()
    assert max(sizes.values()) <= 150_000, sizes
