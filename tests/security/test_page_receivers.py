"""A namespace's Secret with receivers is hostile: real URLs, the real process that sends, and real listeners."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Final

import pytest
from aiosmtpd.smtp import SMTP, Envelope, Session

from fencepost_operator.adapters.page_sender import ProcessSender
from fencepost_operator.paging import child
from fencepost_operator.paging.delivery import Allowance, Answer, Message, Outcome
from fencepost_operator.paging.receivers import SecretSource, parse_receivers
from harness.web_server import Quiet, serving

TENANT: Final = SecretSource(namespace="evil", place="evil/fencepost-pages", key="uid")
UNREACHABLE: Final = Answer(outcome=Outcome.FAILED)
"""What every refusal looks like."""


@dataclass
class Listener:
    """A web server that notes each connection and request; `answers` maps a path to status and headers."""

    connections: int = 0
    requests: list[str] = field(default_factory=list)
    answers: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    statuses: list[int] = field(default_factory=list)
    """Of the next requests."""
    hangs_after: int = 1_000
    """So many requests are answered, and no more."""
    slow: float = 0.0
    port: int = 0


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener()

    class Handler(Quiet, BaseHTTPRequestHandler):
        def setup(self) -> None:
            found.connections += 1
            super().setup()

        def do_POST(self) -> None:
            time.sleep(found.slow)
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found.requests.append(self.path)
            if len(found.requests) > found.hangs_after:
                time.sleep(60)
            status, headers = found.answers.get(self.path.partition("?")[0], (200, {}))
            self.send_response(found.statuses.pop(0) if found.statuses else status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        do_GET = do_PUT = do_POST  # noqa: N815 - the base class' names

    with serving(Handler) as found.port:
        yield found


def only(*entries: str) -> Allowance:
    return Allowance(trusted=False, entries=entries)


ANYTHING: Final = Allowance(trusted=False)
TRUSTED: Final = Allowance(trusted=True)


def apprise(url: str) -> Message:
    return Message(url=url, title="title", body="body", apprise="failure")


async def send(allowance: Allowance, *messages: Message, patience: float = 15.0) -> Sequence[Answer]:
    return await ProcessSender(patience=patience).send(messages, allowance)


FORMS: Final = ("json://{}/x", "form://{}/x", "xml://{}/x", "gotify://{}/token12345", "ntfy://{}/topic")


async def test_without_a_list_no_name_of_loopback_is_contacted(listener: Listener) -> None:
    hosts = ("127.0.0.1", "localhost", "127.1", "2130706433", "[::ffff:127.0.0.1]", "0.0.0.0")  # noqa: S104 - refused
    places = [f"{host}:{listener.port}" for host in hosts]
    found = list(await send(ANYTHING, *(apprise(form.format(place)) for form in FORMS for place in places)))
    found += await send(ANYTHING, *(Message(url=f"http://{place}/api/v2/alerts", body="[]") for place in places))
    assert listener.connections == 0
    assert {answer.outcome for answer in found} <= {Outcome.FAILED, Outcome.REFUSED}
    assert not any(answer.status for answer in found)


def test_metadata_and_the_api_server_are_out_of_reach() -> None:
    allowance = Allowance(trusted=False, reserved=("10.96.0.1",))
    metadata = ("169.254.169.254", "fe80::1", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")
    places = (*metadata, "10.96.0.1", "::", "224.0.0.1")
    codes = [f"socket.create_connection(({place!r}, 443))" for place in places]
    codes += [f"socket.socket({'socket.AF_INET6' if ':' in each else ''}).connect(({each!r}, 443))" for each in places]
    said = in_sandbox(codes, allowance)
    assert set(said) == {"NotAllowed", "gaierror"}, "refused before anything is sent"


async def test_a_list_allows_what_is_on_it_and_nothing_else(listener: Listener) -> None:
    allowed = only(f"127.0.0.1:{listener.port}")
    assert (await send(allowed, apprise(f"json://127.0.0.1:{listener.port}/in")))[0].outcome is Outcome.DELIVERED
    refused = await send(
        only("hooks.example:443"),
        apprise(f"json://127.0.0.1:{listener.port}/out"),
        Message(url=f"http://127.0.0.1:{listener.port}/out", body="x"),
        Message(url="http://127.0.0.1:1/out", body="x"),
        Message(url="http://does-not-exist.invalid/out", body="x"),
    )
    assert listener.requests == ["/in"]
    assert set(refused) == {UNREACHABLE}, "a listener, a closed port and a missing name look the same"


async def test_no_redirect_is_followed(listener: Listener) -> None:
    place, statuses = f"127.0.0.1:{listener.port}", [301, 302, 303, 307, 308]
    for status in statuses:
        listener.answers[f"/{status}"] = (status, {"Location": f"http://{place}/there"})
    for allowance in (only(place), TRUSTED):
        for form in ("json://{}/{}?redirect=yes", "form://{}/{}?method=GET"):
            found = await send(allowance, *(apprise(form.format(place, status)) for status in statuses))
            assert [answer.status for answer in found] == statuses
        found = await send(allowance, *(Message(url=f"http://{place}/{status}", body="") for status in statuses))
        assert [answer.status for answer in found] == statuses
    assert not [path for path in listener.requests if path.startswith("/there")]


def proxies(listener: Listener) -> dict[str, str]:
    """Return an environment that names the listener as the proxy of everything."""
    return dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), f"http://127.0.0.1:{listener.port}")


async def test_no_proxy_of_the_operators_environment_is_used(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, url in proxies(listener).items():
        monkeypatch.setenv(name, url)
    place = f"127.0.0.1:{listener.port}"
    await send(TRUSTED, *(apprise(form.format(place)) for form in FORMS), Message(url=f"http://{place}/a", body=""))
    assert len(listener.requests) == len(FORMS) + 1
    assert [path for path in listener.requests if path.startswith("http")] == []


def test_the_services_use_no_proxy_even_with_an_environment(listener: Listener) -> None:
    """A proxy would connect to any name in a tenant's line; the sandbox sees the proxy's address alone."""
    program = """
import sys
from fencepost_operator.paging import by_apprise
from fencepost_operator.paging.delivery import Message
by_apprise.prepare()
for url in sys.argv[1:]:
    by_apprise.send(Message(url=url, title="title", body="body", apprise="failure"), lambda _answer: None)
"""
    urls = [form.format(f"127.0.0.1:{listener.port}") for form in FORMS]
    command = [sys.executable, "-I", "-c", program, *urls]
    subprocess.run(command, check=True, capture_output=True, timeout=60, env=proxies(listener))
    assert len(listener.requests) == len(FORMS)
    assert [path for path in listener.requests if path.startswith("http")] == []


@pytest.mark.parametrize(
    "line",
    [
        "file:///etc/passwd",
        "file:///var/run/secrets/kubernetes.io/serviceaccount/token",
        "syslog://",
        "dbus://",
        "kde://",
        "gnome://",
        "macosx://",
        "windows://",
        "notify://evil",
        "growl://10.0.0.1",
        "smpp://u:p@10.0.0.1/1/2",
        "mqtt://10.0.0.1/topic",
        "apprises://10.0.0.1/key",
        "fcm://project/token?keyfile=/etc/passwd",
        "vapid://a@b.example/c?keyfile=/etc/passwd",
        "include /etc/passwd",
    ],
)
def test_services_of_the_operators_own_machine_are_not_offered(line: str) -> None:
    found = parse_receivers(TENANT, {"apprise": line})
    assert not found.receivers
    assert line.partition("://")[2] == "" or line not in found.problems[0].message


async def test_a_file_is_neither_read_nor_sent(listener: Listener, tmp_path: Path) -> None:
    """Templates, certificates and signatures that a URL names as a path."""
    secret = tmp_path / "token"
    secret.write_text('{"text": "top-secret"}')
    place = f"127.0.0.1:{listener.port}"
    found = await send(
        only(place),
        apprise(f"workflows://{place}/{'a' * 32}/{'b' * 43}?template={secret}"),
        apprise(f"slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/?template={secret}"),
        apprise(f"json://{place}/x?attach={secret}"),
        apprise(f"mailto://user:pass@{place}?to=a@example.com&pgp=yes&pgpkey={secret}"),
    )
    assert len(found) == 4
    assert all("top-secret" not in request for request in listener.requests)
    assert secret.read_text() == '{"text": "top-secret"}'


def in_sandbox(codes: Sequence[str], allowance: Allowance = ANYTHING, **environment: str) -> list[str]:
    """Run pieces of code in a process that is confined as the one that sends is; return how each ended."""
    program = f"""
import json, os, sys, socket, subprocess, ctypes
from fencepost_operator.paging import sandbox
from fencepost_operator.paging.delivery import Allowance
sandbox.Sandbox(sandbox.policy_of(Allowance(**json.loads({json.dumps(asdict(allowance))!r})))).enter()
for code in json.loads({json.dumps(codes)!r}):
    try:
        exec(code)
    except BaseException as error:
        print(type(error).__name__, flush=True)
    else:
        print("done", flush=True)
"""
    ended = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False, timeout=60, env=environment
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


FORBIDDEN: Final = (
    "subprocess.run(['/bin/true'])",
    "os.system('true')",
    "os.execv('/bin/true', ['true'])",
    "os.posix_spawn('/bin/true', ['true'], {})",
    "os.fork()",
    "open('/tmp/fencepost-page', 'w')",
    "os.open('/tmp/fencepost-page', os.O_CREAT | os.O_WRONLY)",
    "open('/etc/passwd')",
    "open('/proc/self/environ')",
    "open('/var/run/secrets/kubernetes.io/serviceaccount/token')",
    "open('/etc/ssl/../passwd')",
    "os.mkdir('/tmp/fencepost-page')",
    "os.remove('/tmp/fencepost-page')",
    "os.symlink('/etc/passwd', '/tmp/fencepost-page')",
    "ctypes.CDLL(None)",
    "socket.socket(socket.AF_UNIX).connect('/run/containerd/containerd.sock')",
    "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "socket.socket().bind(('127.0.0.1', 0))",
    "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
    "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendmsg([b'x'], [], 0, ('127.0.0.1', 9))",
    "socket.socket().connect(('localhost', 22))",
    "socket.socket().connect_ex(('127.0.0.1', 22)) and 1 / 0",
    "socket.create_connection(('127.0.0.1', 22))",
    "socket.gethostbyname('localhost')",
    "socket.gethostbyaddr('127.0.0.1')",
    "bytearray(2**30)",
    "import sqlite3; sqlite3.connect('/tmp/fencepost-page')",
    "import tempfile; tempfile.TemporaryFile()",
)


def test_the_process_that_sends_can_do_nothing_else() -> None:
    said = dict(zip(FORBIDDEN, in_sandbox(FORBIDDEN), strict=True))
    refused = {"NotAllowed", "MemoryError", "gaierror", "FileNotFoundError"}
    assert {code: end for code, end in said.items() if end not in refused} == {}
    assert not Path("/tmp/fencepost-page").exists()  # noqa: S108


def test_the_process_that_sends_has_no_environment() -> None:
    code = "assert not os.environ, list(os.environ)"
    assert in_sandbox([code], KUBERNETES_SERVICE_HOST="10.96.0.1", AWS_PROFILE="x") == ["done"]


def test_what_it_needs_still_works() -> None:
    """So that the refusals above are not those of a process that can do nothing at all."""
    code = (
        "import decimal, ssl, email.mime.text, encodings.idna\nssl.create_default_context()\nopen('/dev/null').close()"
    )
    assert in_sandbox([code]) == ["done"]


async def test_a_receiver_that_never_answers_is_given_up(listener: Listener) -> None:
    listener.slow = 30
    place = f"127.0.0.1:{listener.port}"
    found = await send(only(place), apprise(f"json://{place}/x?rto=600&cto=600&retry=9"), patience=4.0)
    assert list(found) == [UNREACHABLE]
    assert not child_processes(), "the process is gone"


async def test_a_large_answer_costs_nothing(listener: Listener) -> None:
    """A receiver that never ends its answer: the process reads the status alone, or is killed."""
    endless = socket.create_server(("127.0.0.1", 0))
    port = endless.getsockname()[1]

    def pour() -> None:
        connection, _ = endless.accept()
        try:
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                connection.sendall(b"x" * 65536)
        except OSError:
            connection.close()

    threading.Thread(target=pour, daemon=True).start()
    found = await send(only(f"127.0.0.1:{port}"), apprise(f"json://127.0.0.1:{port}/x"), patience=5.0)
    endless.close()
    assert len(found) == 1
    assert listener.connections == 0
    assert not child_processes()


def mail_to(place: str, recipients: str) -> str:
    """Return a URL of a mail server without TLS."""
    host = place.partition(":")[0]
    return f"mailto://{place}?smtp={host}&from=fencepost@example.com&mode=insecure&{recipients}"


def served(answer: bytes, *, endless: bool = False) -> tuple[socket.socket, list[bytes]]:
    """Return a listener that answers each connection with that, again and again if `endless`, and what it was asked."""
    server, asked = socket.create_server(("127.0.0.1", 0)), list[bytes]()

    def serve() -> None:
        while server.fileno() >= 0:
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(5.0)
                    if not endless:
                        asked.append(connection.recv(65536))
                    connection.sendall(answer)
                    while endless:
                        connection.sendall(answer)
                    while connection.recv(65536):
                        pass

    threading.Thread(target=serve, daemon=True).start()
    return server, asked


async def watched(sending: Awaitable[Sequence[Answer]]) -> tuple[Sequence[Answer], float, set[str]]:
    """Return the answers, the most MiB that a process which sent had resident, and their oom_score_adj."""
    task, peak, scores = asyncio.ensure_future(sending), 0.0, set[str]()
    while not task.done():
        await asyncio.sleep(0.02)
        for place in child_processes():
            with contextlib.suppress(OSError):
                found = re.search(r"VmHWM:\s+(\d+) kB", (place / "status").read_text())
                peak = max(peak, int(found[1]) / 1024 if found else 0.0)
                scores.add((place / "oom_score_adj").read_text().strip())
    return await task, peak, scores


@pytest.mark.parametrize("status", [200, 302, 401])
async def test_an_answer_is_never_decoded(listener: Listener, status: int) -> None:
    """125 KB of gzip that are 128 MiB: an operator whose container has 512 MiB dies of a few of them."""
    body = gzip.compress(bytes(128 * 2**20))
    head = f"HTTP/1.1 {status} x\r\nContent-Length: {len(body)}\r\nContent-Encoding: gzip\r\nLocation: /there\r\n\r\n"
    server, asked = served(head.encode() + body)
    bomb, quiet = f"127.0.0.1:{server.getsockname()[1]}", f"127.0.0.1:{listener.port}"
    listener.slow = 0.5  # so that the peak of the first message is seen
    found, peak, scores = await watched(
        send(only(bomb, quiet), apprise(f"json://{bomb}/x"), apprise(f"json://{quiet}/x"))
    )
    server.close()
    assert [answer.status for answer in found] == [status, 200]
    assert all(b"accept-encoding: identity" in request.lower() for request in asked), "an answer of use is readable"
    assert len(asked) == 1
    assert 10.0 < peak < 110.0, "MiB"
    assert "1000" in scores, "if memory runs out, the kernel takes it and not the operator"


async def test_a_mail_server_cannot_fill_the_memory(listener: Listener) -> None:
    """A greeting of endless lines, which smtplib keeps: the process meets its own limit, and continues."""
    listener.slow = 0.5
    server, _ = served((b"220-" + b"x" * 4000 + b"\r\n") * 100, endless=True)
    mail, quiet = f"127.0.0.1:{server.getsockname()[1]}", f"127.0.0.1:{listener.port}"
    found, peak, _ = await watched(
        send(only(mail, quiet), apprise(mail_to(mail, "to=a@example.com")), apprise(f"json://{quiet}/x"))
    )
    server.close()
    assert [answer.outcome for answer in found] == [Outcome.FAILED, Outcome.DELIVERED]
    assert 10.0 < peak < 110.0, "MiB"


@dataclass
class Mailboxes:
    """What a mail server does with messages: it refuses each recipient with `gone` in the name."""

    delivered: list[str] = field(default_factory=list)

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        if "gone" in address:
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802
        self.delivered += envelope.rcpt_tos
        return "250 OK"


@pytest.mark.parametrize(
    ("recipients", "delivered", "outcome"),
    [
        ("to=a@x.example,b@x.example", ["a@x.example", "b@x.example"], Outcome.DELIVERED),
        ("to=a@x.example,gone@x.example", ["a@x.example"], Outcome.PARTLY),
        ("to=gone@x.example,a@x.example", ["a@x.example"], Outcome.PARTLY),
        ("to=a@x.example&cc=gone@x.example", ["a@x.example"], Outcome.PARTLY),
        ("to=gone@x.example", [], Outcome.FAILED),
    ],
)
async def test_who_has_the_mail_is_not_soon_sent_it_again(
    recipients: str, delivered: list[str], outcome: Outcome
) -> None:
    """FAILED would be tried again within two minutes, for all recipients of the line."""
    boxes = Mailboxes()
    server = await asyncio.get_running_loop().create_server(lambda: SMTP(boxes, hostname="x.example"), "127.0.0.1", 0)
    place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    (answer,) = await send(only(place), apprise(mail_to(place, recipients)))
    server.close()
    assert sorted(boxes.delivered) == delivered
    assert answer == Answer(outcome=outcome)


@pytest.mark.parametrize(
    ("statuses", "answer"),
    [
        ([200, 200, 200, 200], Answer(outcome=Outcome.DELIVERED, status=200)),
        ([200, 503, 200, 200], Answer(outcome=Outcome.PARTLY, status=503)),
        ([503, 503, 503, 503], Answer(outcome=Outcome.FAILED, status=503)),
    ],
)
async def test_recipients_of_one_line_that_got_a_page_do_not_get_it_again_soon(
    listener: Listener, statuses: list[int], answer: Answer
) -> None:
    """Nor does Apprise wait between them for so long that the process is killed before it can say so."""
    listener.statuses += statuses
    place = f"127.0.0.1:{listener.port}"
    assert await send(only(place), apprise(f"ntfy://{place}/a/b/c/d")) == [answer]
    assert len(listener.requests) == 4


def test_a_library_that_fails_after_the_first_recipient_does_not_hide_that_one() -> None:
    answers: list[Answer] = []

    def send(_message: Message, report: Callable[[Answer], None]) -> Answer:
        report(Answer(outcome=Outcome.PARTLY))
        raise OSError("the second recipient")

    child.send_one(send, apprise("json://x.example"), answers.append)
    assert answers == [Answer(outcome=Outcome.PARTLY)]


async def test_a_receiver_that_got_a_page_before_the_process_was_killed_does_not_get_it_again_soon(
    listener: Listener,
) -> None:
    """One recipient of four has the page, the second one hangs; the message after it is not sent at all."""
    place = f"127.0.0.1:{listener.port}"
    listener.hangs_after = 1
    line = f"ntfy://{place}/a/b/c/d?rto=600&cto=600"
    found = await send(only(place), apprise(line), apprise(line), patience=5.0)
    assert [answer.outcome for answer in found] == [Outcome.PARTLY, Outcome.FAILED]
    assert not child_processes()


def child_processes() -> list[Path]:
    """Return the places in /proc of living processes that send, which this process started."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if "fencepost_operator.paging.child" in line and parent == os.getpid():
            found.append(place)
    return found
