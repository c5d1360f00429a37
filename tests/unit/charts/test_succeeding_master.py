"""The program in front of a Spark master: it starts none while workers run executors that the master would end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from harness.web_server import Quiet, serving
from unit.charts.rendering import objects, one

ARGUMENTS = one(objects("spark-cluster", "default", {}), "StatefulSet", "-master")["spec"]["template"]["spec"][
    "containers"
][0]["args"]


@contextmanager
def worker(*answers: bytes) -> Iterator[int]:
    """Serve the pages of a worker one after the other, the last one again and again; yield the port."""
    left = list(answers)

    class Pages(Quiet, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/json/"
            body = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

    with serving(Pages) as port:
        yield port


def start(recovery: Path, port: int) -> str:
    """Run the program until it becomes the master, here a word on stdout; return what was printed."""
    python, isolated, program, *_ = ARGUMENTS
    assert (python, isolated) == ("python", "-Ic")
    command = [sys.executable, "-Ic", program, str(recovery), "127.0.0.1", str(port), "/bin/echo", "MASTER"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


RUNS, ENDED = (json.dumps({"id": "worker-1", "executors": found}).encode() for found in ([{"id": 0}], []))


def test_a_master_waits_for_the_executors_of_the_one_before_it(tmp_path: Path) -> None:
    with worker(RUNS, RUNS, ENDED) as port:
        printed = start(tmp_path, port).splitlines()
    assert "still run executors" in printed[0]
    assert printed[1:] == ["MASTER"], "it says so every 30 s only"


def test_a_master_that_knows_them_does_not_wait(tmp_path: Path) -> None:
    (tmp_path / "app_app-1").touch()
    with worker(RUNS) as port:
        assert start(tmp_path, port) == "MASTER\n"


@pytest.mark.parametrize("answer", [ENDED, b"", b"not JSON", b"[]", b"{}"])
def test_a_master_does_not_wait_for_workers_without_executors(tmp_path: Path, answer: bytes) -> None:
    with worker(answer) as port:
        assert start(tmp_path, port) == "MASTER\n"


def test_a_master_does_not_wait_for_workers_that_do_not_exist(tmp_path: Path) -> None:
    with worker(ENDED) as port:
        pass
    assert start(tmp_path, port) == "MASTER\n"
