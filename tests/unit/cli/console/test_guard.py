"""Who gets an answer: the browser that opened the console's address, and no other page, name, program or method."""

from __future__ import annotations

import pytest

from unit.cli.console.bodies import PORT, TOKEN, URL, Lists, pipeline


@pytest.fixture
def lists() -> Lists:
    return Lists([pipeline()])


def test_the_printed_address_opens_the_console_once_and_for_all_pages(lists: Lists) -> None:
    client = lists.stranger()
    opened = client.get(f"/?token={TOKEN}", headers={"Sec-Fetch-Site": "cross-site"})
    cookie = opened.headers["set-cookie"].lower()
    assert "samesite=strict" in cookie
    assert "httponly" in cookie
    assert 'http-equiv="refresh" content="0;url=/"' in opened.text
    assert "orders" not in opened.text
    assert "orders" in client.get("/").text
    assert client.get("/fleet").status_code == 200
    assert TOKEN not in client.get("/").text


@pytest.mark.parametrize(
    "path", ["/", "/fleet", "/?token=guessed", "/?token=", f"/fleet?token={TOKEN}", "/static/console.js"]
)
def test_without_the_token_there_is_no_answer(lists: Lists, path: str) -> None:
    answer = lists.stranger().get(path)
    assert answer.status_code == 401
    assert "orders" not in answer.text
    assert "set-cookie" not in answer.headers
    assert lists.asked == 0


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.2:{PORT}", ""]
)
def test_another_name_of_this_machine_is_refused(lists: Lists, host: str) -> None:
    """DNS rebinding: the name of an attacker's page resolves to 127.0.0.1, and the browser takes it for the page's."""
    answer = lists.browser().get("/", headers={"Host": host})
    assert answer.status_code == 421
    assert "orders" not in answer.text


def test_localhost_is_a_name_of_the_console(lists: Lists) -> None:
    client = lists.stranger()
    host = {"Host": f"localhost:{PORT}"}
    assert client.get(f"/?token={TOKEN}", headers=host).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_another_page_is_refused_even_with_the_cookie(lists: Lists, headers: dict[str, str]) -> None:
    """Another port of 127.0.0.1 is the same site to a browser: it sends the cookie."""
    answer = lists.browser().get("/fleet", headers=headers)
    assert answer.status_code == 403
    assert "orders" not in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_nothing_is_changed(lists: Lists, method: str) -> None:
    assert lists.browser().request(method, "/").status_code == 405


@pytest.mark.parametrize("path", ["/", "/fleet", "/static/console.js", "/nothing", f"/?token={TOKEN}"])
def test_every_answer_forbids_scripts_frames_and_copies(lists: Lists, path: str) -> None:
    headers = lists.browser().get(path, headers={"Origin": URL}).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize(
    "path", ["/static/../guard.py", "/static/%2e%2e/guard.py", "/static/..%2fguard.py", "/static//etc/passwd"]
)
def test_no_other_file_is_served(lists: Lists, path: str) -> None:
    answer = lists.browser().get(path)
    assert answer.status_code == 404
    assert "import" not in answer.text


def test_a_cookie_that_is_none_is_refused(lists: Lists) -> None:
    client = lists.stranger()
    for cookie in ("\x00=;;", f"fencepost-console-{PORT}=", f"fencepost-console-1={TOKEN}", "a" * 5000):
        assert client.get("/", headers={b"Cookie": cookie.encode("latin-1")}).status_code == 401
