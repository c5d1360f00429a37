"""What a topic's configuration says about its retention, and what it may not say."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_operator.adapters.kafka.topic_retention import retention_of
from fencepost_operator.observation import Retention

DAY = 86_400_000


@pytest.mark.parametrize(
    ("policy", "time", "size", "found"),
    [
        ("delete", f"{DAY}", "-1", Retention(time=timedelta(days=1))),
        ("delete", "-1", "1073741824", Retention(size=1 << 30)),
        ("compact,delete", f"{DAY}", "5", Retention(time=timedelta(days=1), size=5)),
        ("compact, delete", "0", "0", Retention(time=timedelta(), size=0)),
        ("compact", f"{DAY}", "5", Retention()),
        ("", f"{DAY}", "5", Retention()),
        ("delete", f"{2**63 - 1}", f"{2**63 - 1}", Retention(size=2**63 - 1)),
    ],
)
def test_retention(policy: str, time: str, size: str, found: Retention) -> None:
    settings = {"cleanup.policy": policy, "retention.ms": time, "retention.bytes": size}
    assert retention_of(settings) == found


@pytest.mark.parametrize("value", [None, "", "soon", "1e9", " 5", "٣", f"{2**63}", "9" * 5000])
def test_a_value_that_kafka_does_not_document_is_named(value: str | None) -> None:
    settings = {"cleanup.policy": "delete", "retention.ms": value, "retention.bytes": "-1"}
    with pytest.raises(ValueError, match=r"retention\.ms"):
        retention_of(settings)


@given(st.dictionaries(st.sampled_from(["cleanup.policy", "retention.ms", "retention.bytes"]), st.none() | st.text()))
def test_any_text_is_read_or_refused(settings: dict[str, str | None]) -> None:
    try:
        found = retention_of(settings)
    except ValueError:
        return
    assert found.time is None or found.time >= timedelta()
