"""What an alert says over time: the rule is read from the chart and applied to series as Prometheus has them."""

import re
from collections.abc import Callable, Sequence

import pytest

from unit.charts.rendering import objects, one

RULES = [
    rule
    for group in one(objects("fencepost", "full"), "PrometheusRule", "fencepost")["spec"]["groups"]
    for rule in group["rules"]
]
GREW = re.compile(
    r"max by \(namespace, name\) \((?P<now>(?:sum without \(reason\) \(\w+\))|\w+)\)"
    r" - min by \(namespace, name\) \(min_over_time\((?P=now)\[(?P<minutes>\d+)m:?\]\)\) > (?P<more>\d+)"
)
OF_PIPELINES = re.compile(
    r"(max|min) by \(namespace, name(, reason)?\) "
    r"\((last_over_time\(|min_over_time\()?(sum without \(reason\) \()?fencepost_pipeline_\w+"
)
STALE = 5
"""Minutes after which Prometheus forgets the last sample of a target that it does not find any more."""

Samples = Callable[[int], int | None]
"""What a pod of the operator says at a minute, None while there is no such pod."""


def firing(alert: str, pods: Sequence[Samples], minute: int) -> bool:
    """Apply a rule on a count that grew to the series of the operator's pods, scraped once per minute."""
    (rule,) = [rule for rule in RULES if rule["alert"] == alert]
    found = GREW.fullmatch(rule["expr"])
    assert found, rule["expr"]

    def within(minutes: int) -> list[list[int]]:
        window = range(max(0, minute - minutes + 1), minute + 1)
        return [[value for at in window if (value := pod(at)) is not None] for pod in pods]

    last = [values[-1] for values in within(STALE) if values]
    lowest = [min(values) for values in within(int(found["minutes"])) if values]
    return bool(last) and max(last) - min(lowest) > int(found["more"])


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([lambda at: 7], set()),  # noqa: ARG005 - old letters
        ([lambda at: 0 if at < 10 else 1], set(range(10, 39))),
        ([lambda at: 7 if at < 60 else 9], set(range(60, 89))),
        # The operator restarts: its pod's name is a label, so its figures go on in another series.
        ([lambda at: 7 if at < 60 else None, lambda at: 7 if at >= 62 else None], set()),
        ([lambda at: 7 if at < 60 else None, lambda at: 8 if at >= 62 else None], set(range(62, 89))),
        # The pipeline is deleted with its row, and created again.
        ([lambda at: 7 if at < 60 else 0], set()),
        ([lambda at: 7 if at < 60 else 0 if at < 70 else 1], set(range(70, 99))),
    ],
    ids=["quiet", "first", "more", "restart", "during a restart", "created again", "first after that"],
)
def test_dead_letters_are_told_once_written_whatever_pod_of_the_operator_counts(
    pods: Sequence[Samples], expected: set[int]
) -> None:
    assert {minute for minute in range(120) if firing("FencepostDeadLettersWritten", pods, minute)} == expected


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([lambda at: 50], set()),  # noqa: ARG005 - restarts of last year
        ([lambda at: at // 7], set(range(28, 120))),  # five minutes of waiting, and the start
        ([lambda at: at // 12], set()),
        # Each pod of the operator goes on with the count of the status.
        (
            [lambda at: 50 + at // 7 if at < 20 else None, lambda at: 50 + at // 7 if at >= 22 else None],
            set(range(28, 120)),
        ),
        ([lambda at: 50 if at < 20 else None, lambda at: 50 if at >= 22 else None], set()),
        # With two replicas, the one that acts tells.
        ([lambda at: 9 if at < 60 else None, lambda at: min(14, at - 50) if at >= 60 else None], set(range(63, 90))),
        # The pipeline is created again.
        ([lambda at: 9 if at < 60 else 0 if at < 70 else 4], set(range(70, 99))),
    ],
    ids=["old", "slow loop", "slower", "restarts of both", "restart", "two replicas", "created again"],
)
def test_a_loop_of_restarts_is_seen_across_restarts_of_the_operator(
    pods: Sequence[Samples], expected: set[int]
) -> None:
    assert {minute for minute in range(120) if firing("FencepostRestartLoop", pods, minute)} == expected


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_no_alert_of_a_pipeline_is_of_one_pod_of_the_operator(rule: dict[str, str]) -> None:
    """With its labels, the alert of a pipeline begins over when another replica acts."""
    assert "fencepost_pipeline_" not in OF_PIPELINES.sub("", rule["expr"])
