from datetime import UTC, datetime

from bench.catch_up import Batch, CatchUp, Estimate
from bench.heap import trend
from fencepost.fence import FenceRow

LOG = """\
[0.912s] GC(0) Pause Young (Allocation Failure) 34M->9M(123M) 17.002ms
[4.100s] GC(1) Pause Full (Metadata GC Threshold) 20M->12M(123M) 40.118ms
[9.800s] GC(2) Pause Young (Allocation Failure) 45M->30M(123M) 3.250ms
[21.500s] GC(3) Pause Young (Allocation Failure) 64M->31M(123M) 4.001ms
[21.700s] GC(4) Concurrent Mark Cycle 1.2ms
"""


def test_of_each_interval_the_heap_after_its_best_collection_counts() -> None:
    found = trend("driver", LOG)
    assert list(found.values) == [9, 31]
    assert [round(hours * 3600) for hours in found.hours] == [0, 20]


def test_a_jvm_that_wrote_no_log_has_no_trend() -> None:
    assert trend("driver", "").summary() == "not measured"


def test_an_estimate_is_held_against_what_was_left_when_it_was_made() -> None:
    row = FenceRow(pipeline="s/n/p", owner="o", epoch=1, committed_at=datetime.fromtimestamp(400, UTC))
    seen = CatchUp(100, 400, row, [Estimate(160, 300), Estimate(220, 160), Estimate(400, 10)], [Batch(7, 0.5, 2)])
    samples = {(sample.name, sample.unit): sample.values for sample in seen.samples("x")}
    assert samples["x: estimate off by", "s"] == [60, 20]
    assert samples["x: estimate off by", "% of the time left"] == [25, 100 * 20 / 180]
    assert seen.notes("x") == [
        "x: 300 s, 1 batches, the smallest of 7 records",
        "x: time left by the status (and by the clock): 300 s (240), 160 s (180)",
    ]
