"""The page of one pipeline: each part shows what there is, why there is nothing, or what to do."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fencepost_cli.access import Overrides
from fencepost_cli.console import kept_history
from fencepost_cli.console.open_stores import IDLE, OLDEST, OpenStores
from fencepost_cli.console.story import BUCKETS, faults, story
from fencepost_cli.errors import CliError
from fencepost_cli.history.reading import Entry, newest
from fencepost_cli.ports import Related
from fencepost_operator.api import RowCounts, TrialSample
from unit.cli.console.bodies import SINCE, Lists, pipeline
from unit.cli.console.markup import elements, skeleton
from unit.cli.console.test_fleet_page import HOSTILE
from unit.cli.test_trial import body, completed
from unit.cli.world import KEY, ROW, World, dead_letter, history
from unit.cli.world import story as two_runs

A_WEEK = timedelta(days=7)
PAGE = "/pipelines/shop/orders"
COMMITTED = {
    "time": "2026-01-02T03:04:05.678+00:00", "level": "info", "message": "committed", "epoch": 2, "version": 7,
    "records": 3, "ms": {"plan": 10, "record": 5, "write": 60, "transform": 20, "job": 40, "commit": 15, "total": 100},
    "lag": 2,
}  # fmt: skip
FAILURE = {
    "count": 2, "epoch": 1, "at": SINCE, "reason": "OutOfMemory", "message": "the JVM ran out of memory",
    "remedy": "give it more", "exitCode": 137, "log": ["one", "java.lang.OutOfMemoryError"],
}  # fmt: skip


def warning(reason: str, message: str, *, ago: timedelta = timedelta(minutes=3), count: int = 4) -> dict[str, Any]:
    at = (datetime.now(UTC) - ago).isoformat()
    return {"type": "Warning", "reason": reason, "message": message, "lastTimestamp": at, "count": count}


@pytest.fixture
def lists() -> Lists:
    found = Lists()
    world = found.world
    world.body = pipeline(lag=3, epoch=2, failure=FAILURE, run=run("orders-run-2-abcde"))
    world.related_objects[Related.EVENTS] = [warning("RunFailed", "run 1 failed")]
    world.log_text = json.dumps(COMMITTED) + "\n"
    world.keep(dead_letter("orders", 7))
    return found


def seeded(text: str = "harmless") -> Lists:
    """A pipeline with one of everything, and this text wherever a tenant may write."""
    lists = Lists()
    world = lists.world
    failure = {**FAILURE, "reason": text, "message": text, "remedy": text, "log": [text, text]}
    world.body = pipeline(message=text, failure=failure, run=run(text), rewind=text)
    said = {"type": text, "status": "True", "reason": text, "message": text, "lastTransitionTime": SINCE}
    world.body["status"]["conditions"].append({**said, "observedGeneration": 1})
    world.related_objects[Related.EVENTS] = [warning(text, text)]
    world.log_text = json.dumps({**COMMITTED, "time": text}) + f"\n{text}"
    encoded = text.encode()
    letter = dead_letter("orders", 7, value=encoded, key=encoded, headers=((text, encoded),), error=text)
    world.keep(replace(letter, reason=text, traceback=text, retried_to=text, retried_by=text, retried_at=letter.at))
    world.snapshot_rows = [replace(one, trigger=text, name=text, code=text) for one in world.snapshot_rows]
    world.records = [replace(one, driver=text, code=text) if one.base else one for one in world.records]
    metadata = {"name": text, "namespace": "shop", "uid": "u", "creationTimestamp": SINCE}
    status = {"phase": text, "message": text, "steps": [{"name": "Stop", "state": "Done", "message": text}]}
    spec = {"pipeline": "orders", "to": {"snapshot": "x"}}
    world.related_objects[Related.REWINDS] = [{"metadata": metadata, "spec": spec, "status": status}]
    sample = {"sink": text, "kind": text, "key": text, "columns": text}
    tried = {
        "phase": text, "message": text, "rows": {"compared": 3, "changed": 1}, "samples": [sample],
        "promotion": {"state": text, "message": text},
    }  # fmt: skip
    asked = {"pipeline": "orders", "job": {"image": text}, "since": {"duration": "1h"}}
    world.related_objects[Related.TRIALS] = [{"metadata": metadata, "spec": asked, "status": tried}]
    return lists


def run(pod: str) -> dict[str, Any]:
    return {
        "name": "orders-run-2", "epoch": 2, "specHash": "h", "clusterGeneration": 1, "recordedAt": SINCE,
        "podName": pod,
    }  # fmt: skip


def test_the_page_shows_conditions_with_their_runbook_and_the_last_failure_with_its_log(lists: Lists) -> None:
    page = lists.browser().get(PAGE).text
    for text in ("Streaming", "OutOfMemory", "exit code 137", "java.lang.OutOfMemoryError", "give it more", "137"):
        assert text in page
    runbooks = [
        one.attributes["href"] for one in elements(page) if one.attributes.get("href", "").startswith("/runbooks")
    ]
    assert runbooks == [
        "/runbooks/Streaming?namespace=shop&name=orders&epoch=2",
        "/runbooks/OutOfMemory?namespace=shop&name=orders&epoch=1",
    ]


def test_a_runbook_has_the_commands_with_the_pipelines_names(lists: Lists) -> None:
    client = lists.browser()
    page = client.get("/runbooks/BackingOff?namespace=shop&name=orders&epoch=7").text
    assert "kubectl annotate spl -n shop orders streaming.fencepost.dev/retry" in page
    assert "kubectl logs -n shop job/orders-run-7 --tail 50" in page
    hostile = client.get(
        "/runbooks/BackingOff", params={"namespace": "$(rm -rf ~)", "name": "<b>", "epoch": "1;x"}
    ).text
    assert "kubectl logs -n NAMESPACE job/NAME-run-EPOCH --tail 50" in hostile
    assert "rm -rf" not in hostile
    assert client.get("/runbooks/NoSuchReason").status_code == 404


def test_the_record_has_epochs_commits_faults_snapshots_and_dead_letters(lists: Lists) -> None:
    page = lists.browser().get(f"{PAGE}/record").text
    for text in (
        "Epoch 2",
        "Epoch 1",
        "pod-2",
        "RunFailed",
        "4 times",
        "before-the-sale",
        "orders/0@7",
        "ValueError: no price",
    ):
        assert text in page
    (chart,) = [one for one in elements(page) if one.attributes.get("class") == "chart"]
    series = json.loads(chart.attributes["data-series"])
    assert len(series["time"]) == len(series["lag"]) == len(series["rate"]) == BUCKETS
    assert [lag for lag in series["lag"] if lag is not None][-1] == 2
    assert sum(rate or 0 for rate in series["rate"]) == pytest.approx(12 / 30)


@pytest.mark.parametrize("span", ["15m", "7d", "1y", "<b>"])
def test_a_span_is_one_of_those_offered(lists: Lists, span: str) -> None:
    answer = lists.browser().get(PAGE, params={"span": span})
    assert answer.status_code == 200
    assert f'hx-get="{PAGE}/record?span={span if span in {"15m", "7d"} else "1h"}"' in answer.text


def test_without_rights_in_cassandra_the_part_says_so_and_the_rest_works(lists: Lists) -> None:
    grant = "as a superuser: GRANT SELECT ON TABLE fencepost.fence_changes TO the role"
    lists.world.no_store = CliError("User ann has no SELECT permission on <table fencepost.fence>", remedy=grant)
    client = lists.browser()
    page = client.get(f"{PAGE}/record")
    assert page.status_code == 200
    assert "no SELECT permission on &lt;table fencepost.fence&gt;" in page.text
    assert grant in page.text
    assert client.get(PAGE).status_code == 200
    assert "100" in client.get(f"{PAGE}/batches").text


def test_without_rights_on_events_the_history_is_shown_all_the_same(lists: Lists) -> None:
    lists.world.related_objects[Related.EVENTS] = CliError("events is forbidden", remedy="ask for list events")
    page = lists.browser().get(f"{PAGE}/record").text
    assert "events is forbidden" in page
    assert "Epoch 2" in page


def test_a_pipeline_without_anything_yet(lists: Lists) -> None:
    lists.world.body = {**pipeline(), "status": {"observedGeneration": -1}}
    lists.world.records.clear()
    lists.world.snapshot_rows.clear()
    lists.world.kept_letters.clear()
    lists.world.related_objects.clear()
    client = lists.browser()
    assert "has not reported on this pipeline yet" in client.get(PAGE).text
    record = client.get(f"{PAGE}/record").text
    for text in (
        "did not change in this span",
        "No record was set aside",
        "No snapshot was taken",
        "No epoch and no fault",
    ):
        assert text in record
    assert "No new code was tried" in client.get(f"{PAGE}/trials").text
    assert "No rewind was asked for" in client.get(f"{PAGE}/rewinds").text
    assert "have no batch" in client.get(f"{PAGE}/batches").text


def test_a_pipeline_that_does_not_exist(lists: Lists) -> None:
    answer = lists.browser().get("/pipelines/shop/nothing")
    assert answer.status_code == 404
    assert "pipeline shop/nothing not found" in answer.text


def test_trials_are_listed_with_the_rows_that_differ(lists: Lists) -> None:
    rows = RowCounts(compared=90, equal=88, changed=2, missing=0)
    status = completed(rows, samples=(TrialSample(sink="orders", kind="Changed", key="id=7", columns="amount"),))
    lists.world.related_objects[Related.TRIALS] = [body(status), body()]
    page = lists.browser().get(f"{PAGE}/trials").text
    for text in ("Completed", "Waiting", ">90<", ">2<", "id=7", "amount", "90 rows compared"):
        assert text in page
    lists.world.related_objects[Related.TRIALS] = CliError("you may not list PipelineTrials", remedy="ask for list")
    assert "ask for list" in lists.browser().get(f"{PAGE}/trials").text


def test_batches_are_split_by_phase(lists: Lists) -> None:
    page = lists.browser().get(f"{PAGE}/batches").text
    bars = [one.attributes for one in elements(page) if one.tag == "rect" and one.attributes.get("height") == "12"]
    assert [(one["class"], one["x"], one["width"]) for one in bars] == [
        ("phase plan", "0.0", "100.0"), ("phase record", "100.0", "50.0"), ("phase transform", "150.0", "200.0"),
        ("phase job", "350.0", "400.0"), ("phase commit", "750.0", "150.0"), ("phase other", "900.0", "100.0"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "not json", '{"message": "committed"}', '{"message": "committed", "ms": {"total": "<b>"}}',
        '{"message": "committed", "ms": {"total": -1}}', '{"message": "committed", "ms": {"total": 1e99}}',
        '{"message":"committed","ms":{"total":1},"time":"0001-01-01T00:00:00+14:00"}',
        '{"message":"committed","ms":{"total":1},"time":"9999-12-31T23:59:59-14:00"}',
        '"committed"', "[" * 10_000 + '"committed"', '{"message":"committed","ms":{"total":1,"<b>":9},"time":"<b>"}',
    ],
)  # fmt: skip
def test_lines_that_a_tenants_code_logs_break_nothing(lists: Lists, line: str) -> None:
    lists.world.log_text = f"{line}\n{json.dumps(COMMITTED)}\n{line}\n"
    answer = lists.browser().get(f"{PAGE}/batches")
    assert answer.status_code == 200
    assert "03:04:05" in answer.text
    assert "<b>" not in answer.text


def test_a_dead_letter_is_shown_as_text_or_in_hexadecimal(lists: Lists) -> None:
    lists.world.keep(dead_letter("orders", 8, value=b"\x00\x01<script>\xff", key=None))
    client = lists.browser()
    text = client.get(f"{PAGE}/letters/orders/0/7").text
    assert "{&#34;n&#34;: 1}" in text
    assert "Traceback:" in text
    assert "\n    raise" in text
    binary = client.get(f"{PAGE}/letters/orders/0/8").text
    assert "000000  00 01 3c 73 63 72 69 70 74 3e ff" in binary
    assert "..&lt;script&gt;." in binary
    assert client.get(f"{PAGE}/letters/orders/0/9").status_code == 404


def test_a_large_record_is_cut_for_the_browser(lists: Lists) -> None:
    lists.world.keep(dead_letter("orders", 8, value=b"x" * 3_000_000))
    page = lists.browser().get(f"{PAGE}/letters/orders/0/8").text
    assert len(page) < 100_000
    assert "3,000,000 bytes" in page
    assert "The rest is not shown" in page


def test_many_headers_and_a_long_traceback_are_cut_for_the_browser(lists: Lists) -> None:
    one = dead_letter("orders", 8, headers=[(f"h{number}", b"") for number in range(20_000)])
    lists.world.keep(replace(one, traceback="x\n" * 1_000_000))
    page = lists.browser().get(f"{PAGE}/letters/orders/0/8").text
    assert len(page) < 200_000
    assert "19,900 more headers are not shown" in page


def test_a_story_shows_the_newest_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost_cli.console.story.MOST_EPOCHS", 2)
    world, until = World.usual(), datetime.now(UTC) + timedelta(seconds=1)
    entries = newest(ROW, _hour(world), limit=None, since=None)
    found = story(entries, [], since=until - timedelta(minutes=15), until=until)
    assert ([one.number for one in found.epochs], found.is_cut) == ([1, 2], True)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_tenants_text_stays_text_on_every_part(text: str) -> None:
    def pages(text: str) -> list[str]:
        client = seeded(text).browser()
        parts = ("", "/status", "/record", "/batches", "/trials", "/rewinds", "/letters/orders/0/7")
        answers = [client.get(PAGE + part) for part in parts]
        assert [answer.status_code for answer in answers] == [200] * len(parts)
        return [answer.text for answer in answers]

    for harmless, hostile in zip(pages("harmless"), pages(text), strict=True):
        assert set(skeleton(hostile)) <= set(skeleton(harmless)) | {("p", ("class",))}
        for one in elements(hostile):
            assert not any(name.startswith("on") for name in one.attributes)
            assert one.attributes.get("href", "/").startswith(("/", "#"))
            assert one.attributes.get("hx-get", "/").startswith("/")


def test_epochs_and_rates_of_a_story() -> None:
    world = World.usual()
    until = datetime.now(UTC) + timedelta(seconds=1)
    found = story(
        newest(ROW, _hour(world), limit=None, since=None),
        faults([warning("RunFailed", "x"), {"type": "Warning"}, {"type": "Normal"}, warning("Old", "", ago=A_WEEK)]),
        since=until - timedelta(minutes=15), until=until,
    )  # fmt: skip
    assert [(one.number, one.driver, one.commits, one.records) for one in found.epochs] == [
        (0, None, 0, 0), (1, "pod-1", 2, 9), (2, "pod-2", 1, 3),
    ]  # fmt: skip
    assert [mark.reason for mark in found.marks] == ["RunFailed"]
    assert sum(point.commits for point in found.points) == 3
    assert found.share(found.since) == 0
    assert found.share(until + timedelta(days=1)) == 1


def _hour(world: World) -> Any:
    return lambda hour: [record for record in world.records if record.hour == hour]


def test_a_page_that_stays_open_reads_each_change_of_the_history_once(lists: Lists) -> None:
    """History of the defect: a page over seven days read up to 50,000 changes again every 20 seconds."""
    world, page = lists.world, lists.browser()
    records = history(two_runs(), every=timedelta(minutes=5))
    world.records = records[:-2]
    read = list[int]()
    for _ in range(3):
        before = world.changes_read
        assert "Epoch 2" in page.get(f"{PAGE}/record?span=7d").text
        read.append(world.changes_read - before)
        world.records = records
    assert read == [len(records) - 2, 1 + 2, 1], "the newest minute is read again: another writer may append late"


@pytest.mark.parametrize("most", [3, 50_000])
@pytest.mark.parametrize("every", [timedelta(seconds=2), timedelta(minutes=5), timedelta(minutes=50)])
def test_what_is_kept_and_what_is_read_later_is_the_history(
    monkeypatch: pytest.MonkeyPatch, every: timedelta, most: int
) -> None:
    monkeypatch.setattr(kept_history, "MOST_CHANGES", most)
    world, records = World.usual(), history(two_runs(), every=every)
    with OpenStores(world.ports, world, Overrides(), print).of(KEY) as opened:
        for count in [*range(1, len(records) + 1), len(records)]:
            world.records = records[:count]
            for span in (timedelta(minutes=15), A_WEEK):
                since = datetime.now(UTC) - span
                found = opened.history.newest(opened.store, since=since)
                expected = newest(ROW, _hour(world), limit=most, since=since)
                assert [_without_figures(one) for one in found] == [_without_figures(one) for one in expected]


def test_a_change_that_is_appended_late_is_shown() -> None:
    world, records = World.usual(), history(two_runs(), every=timedelta(seconds=10))
    world.records, since = [*records[:-2], records[-1]], datetime.now(UTC) - A_WEEK
    with OpenStores(world.ports, world, Overrides(), print).of(KEY) as opened:
        assert len(opened.history.newest(opened.store, since=since)) == len(records) - 1
        world.records = records
        found = opened.history.newest(opened.store, since=since)
    assert [one.version for one in found] == [*reversed(range(len(records)))]


def _without_figures(entry: Entry) -> Entry:
    return replace(entry, moved={}, figures={}, contiguous=None)


def test_a_connection_is_kept_while_it_is_used_and_opened_again_after_an_error() -> None:
    world, now = World.usual(), [1000.0]
    stores = OpenStores(world.ports, world, Overrides(), print, clock=lambda: now[0])

    def used() -> None:
        with stores.of(KEY) as opened:
            assert opened.store.row() == world.row

    used()
    used()
    assert len(world.asked) == 1
    now[0] += IDLE + 1
    used()
    assert len(world.asked) == 2
    with pytest.raises(CliError), stores.of(KEY):
        raise CliError("no answer", remedy="wait")
    used()
    assert len(world.asked) == 3
    for _ in range(int(OLDEST / 30)):
        now[0] += 31
        used()
    assert len(world.asked) == 4
    stores.close()
    used()
    assert len(world.asked) == 5
