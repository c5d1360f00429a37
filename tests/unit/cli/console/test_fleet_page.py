"""The page of all pipelines: what it shows, in which order, and what it shows instead of them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fencepost_cli.console.latest_list import INTERVAL, OLDEST
from fencepost_cli.errors import CliError
from unit.cli.console.bodies import Lists, pipeline
from unit.cli.console.markup import elements, skeleton

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' hx-get='/x' hx-trigger='load",
    "{{ 7 * 7 }}{% raw %}",
    "</table></main><iframe src=//evil.example>",
    "javascript:alert(1)",
    "&lt;b&gt;&#60;b&#62;",
    "\u202e\u2066gnp.exe\x1b[31m\x00",
    "a\nb\r\nSet-Cookie: x=1",
)


def names(page: str) -> list[str]:
    return ["".join(one.text) for one in elements(page) if one.attributes.get("class") == "pick"]


def test_a_row_has_what_the_status_says() -> None:
    lag: dict[str, Any] = {"lag": 12345, "epoch": 7, "restarts": 3, "throughput": {"recordsPerSecond": 800}}
    page = Lists([pipeline(message="streams", **lag)]).browser().get("/").text
    for text in ("shop", "orders", "Running", "12,345", "800", "streams", 'href="/pipelines/shop/orders"'):
        assert text in page
    cells = re.findall(r"<t[dh][^>]*>(?:<[^>]+>)*([^<]*)", page[page.index("<tbody>") :])
    assert [cell.strip() for cell in cells[:7]] == ["shop", "orders", "Running", "12,345", "800", "7", "3"]


def test_the_most_urgent_come_first_and_a_column_orders_them() -> None:
    bodies = [
        pipeline("a", lag=5, restarts=1),
        pipeline("b", state="Stalled", ready="False", lag=None),
        pipeline("c", state="Suspended", lag=70),
        pipeline("d", state="Restarting", ready="False", lag=900),
    ]
    client = Lists(bodies).browser()
    assert names(client.get("/").text) == ["b", "d", "a", "c"]
    assert names(client.get("/?sort=-lag").text) == ["d", "c", "a", "b"]
    assert names(client.get("/?sort=lag").text) == ["a", "c", "d", "b"]
    assert names(client.get("/?sort=name").text) == ["a", "b", "c", "d"]
    assert names(client.get("/?sort=__class__").text) == ["b", "d", "a", "c"]
    assert 'aria-sort="descending"' in client.get("/?sort=-lag").text


def test_words_and_states_choose() -> None:
    paused = {"streaming.fencepost.dev/paused": "true"}
    client = Lists([
        pipeline("orders", "shop"), pipeline("clicks", "web", message="no Such topic"),
        pipeline("visits", "web", state="Suspended", annotations=paused),
    ]).browser()  # fmt: skip
    assert names(client.get("/?words=WEB").text) == ["visits", "clicks"]
    assert names(client.get("/?words=web+topic").text) == ["clicks"]
    assert names(client.get("/?state=Suspended").text) == ["visits"]
    assert names(client.get("/?words=paused").text) == ["visits"]
    nothing = client.get("/?words=xyz").text
    assert "No pipeline matches the filter" in nothing
    assert "0 of 3 pipelines" in re.sub(r"\s+", " ", nothing)


def test_the_rows_are_sent_again_only_when_they_changed() -> None:
    lists = Lists([pipeline(lag=1)])
    client = lists.browser()
    first = client.get("/fleet").text
    seen = next(one.attributes["value"] for one in elements(first) if one.attributes.get("name") == "seen")
    assert client.get(f"/fleet?seen={seen}").status_code == 204
    lists.bodies = [pipeline(lag=2)]
    assert client.get(f"/fleet/refresh?seen={seen}").status_code == 204
    lists.now += INTERVAL
    assert client.get(f"/fleet/refresh?seen={seen}").status_code == 200
    assert lists.asked == 2


def test_who_filters_does_not_wait_for_a_list_unless_the_last_one_is_old() -> None:
    lists = Lists([pipeline(lag=1)])
    client = lists.browser()
    client.get("/")
    lists.bodies = [pipeline("clicks")]
    lists.now += OLDEST - 1
    for path in ("/", "/fleet?words=shop", "/fleet?sort=name"):
        assert names(client.get(path).text) == ["orders"]
    assert lists.asked == 1
    lists.now += 1
    assert names(client.get("/fleet").text) == ["clicks"]


def test_no_pipelines_yet() -> None:
    page = Lists().browser().get("/").text
    assert "There are no pipelines" in page
    assert "fencepost init" in page


def test_an_account_of_one_namespace_sees_which() -> None:
    assert "Only namespace shop is shown" in Lists([pipeline()], "shop").browser().get("/").text


def test_an_api_server_that_does_not_answer_is_named_with_the_remedy_and_the_old_list_stays() -> None:
    lists = Lists([pipeline()], error=CliError("the API server did not answer", remedy="log in <again>"))
    client = lists.browser()
    page = client.get("/").text
    assert "the API server did not answer" in page
    assert "log in &lt;again&gt;" in page
    assert "<table" not in page
    lists.error, lists.now = None, lists.now + INTERVAL
    assert names(client.get("/").text) == ["orders"]
    lists.error, lists.now = CliError("gone", remedy="wait"), lists.now + INTERVAL
    assert client.get("/fleet/refresh").status_code == 200
    page = client.get("/").text
    assert names(page) == ["orders"]
    assert "The list is of 20" in page


@pytest.mark.parametrize("text", HOSTILE)
def test_a_tenants_text_stays_text(text: str) -> None:
    """In names, which only a hostile API server has so, messages, annotations, and what the user filters for."""
    harmless, hostile = (
        Lists([
            pipeline(name, namespace, message=message, annotations={"streaming.fencepost.dev/paused": message}),
            pipeline("x", state="Stalled", message=message, failure={"message": message}),
        ]).browser()
        for name, namespace, message in (("n", "ns", "harmless"), (text, text, text))
    )  # fmt: skip
    assert skeleton(hostile.get("/").text) == skeleton(harmless.get("/").text)
    chosen = hostile.get("/", params={"words": text, "state": text, "sort": text})
    assert chosen.status_code == 200
    expected = harmless.get("/", params={"words": "zzz", "state": "zzz", "sort": "zzz"})
    assert {tag for tag, _ in skeleton(chosen.text)} <= {tag for tag, _ in skeleton(expected.text)} | {"table", "tbody"}
    for one in elements(hostile.get("/").text):
        assert not any(name.startswith("on") for name in one.attributes)
        assert one.attributes.get("href", "/").startswith(("/", "#"))


def test_a_thousand_pipelines_are_one_list_and_a_page_that_grows() -> None:
    lists = Lists([pipeline(f"p{number}", f"team-{number % 40}", lag=number) for number in range(1000)])
    client = lists.browser()
    page, found = client.get("/?sort=-lag").text, list[str]()
    for shown in (400, 600, 800, 1000):
        assert "1,000 of 1,000 pipelines" in re.sub(r"\s+", " ", page)
        found = names(page)
        assert len(found) == shown - 200
        (more,) = (one.attributes["hx-get"] for one in elements(page) if one.attributes.get("class") == "more")
        assert more == f"/fleet?sort=-lag&shown={shown}"
        page = client.get(more).text
    assert names(page)[: len(found)] == found
    assert names(page) == [f"p{number}" for number in reversed(range(1000))]
    assert 'class="more"' not in page
    for wrong in ("-1", "1e9", "9" * 5000, "x"):
        assert len(names(client.get("/fleet", params={"shown": wrong}).text)) == 200
    assert len(names(client.get("/fleet?words=team-7%2F").text)) == 25
    assert lists.asked == 1


def test_a_page_that_does_not_exist_is_answered_in_the_same_style() -> None:
    answer = Lists().browser().get("/nothing/<b>")
    assert answer.status_code == 404
    assert "Not found" in answer.text
    assert "<b>" not in answer.text
