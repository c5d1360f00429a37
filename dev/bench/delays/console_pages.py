"""The console with a fleet, in a headless browser: what a refresh and a filter take.

Its API server is a model in this process, which answers with pages of pipelines whose lag changes from list to list.
CPU time is what is measured: a busy machine does not change it much.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from aiohttp import web

from bench.samples import Result, Sample
from fencepost_operator.api import GROUP, KIND, PLURAL, VERSION
from flights.console import Console
from harness.browser import Page, browsing, chromium

NAME: Final = "console"
PIPELINES: Final = 1000
ROUNDS: Final = 10
EXAMPLE: Final = Path(__file__).parents[3] / "examples/departures/pipeline.yaml"
_TICK: Final = 1000.0 / os.sysconf("SC_CLK_TCK")
"""Milliseconds of the unit in which Linux counts a process's CPU time."""
_ROWS: Final = "document.querySelectorAll('a.pick').length"
_DRAWN: Final = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
_SHOWN: Final = (
    "document.querySelector('a.pick[href$=\"/p-0000\"]').closest('tr').cells[3].textContent.replaceAll(',', '')"
)
"""The lag of the first pipeline, which is the number of the list."""
_FILTER: Final = """
new Promise(done => {
  const words = document.getElementById('words');
  new MutationObserver((_, self) => {
    self.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => done(true)));
  }).observe(document.getElementById('fleet'), {childList: true});
  words.value = WORDS;
  words.dispatchEvent(new Event('input', {bubbles: true}));
})
"""
"""Filters as a key does, and ends with the frame that has the other rows."""


@dataclass(slots=True)
class Fleet:
    """The API server; a list counts in `lists`, and is the lag of the pipeline p-0000."""

    lists: int = 0
    manifest: dict[str, Any] = field(default_factory=lambda: yaml.safe_load(EXAMPLE.read_text()))

    def pipeline(self, number: int) -> dict[str, Any]:
        """Return one pipeline with a status."""
        message = f"the run of epoch 3 commits; batch {1000 + self.lists} took 0.9 s"
        moment = "2026-01-02T03:04:05Z"
        ready = {"type": "Ready", "status": "True", "reason": "Streaming", "message": message}
        status = {
            "state": "Running", "observedGeneration": 1, "epoch": 3, "lag": number + self.lists, "message": message,
            "throughput": {"recordsPerSecond": 800 + number % 7}, "restarts": number % 3,
            "conditions": [{**ready, "lastTransitionTime": moment, "observedGeneration": 1}],
        }  # fmt: skip
        metadata = {"name": f"p-{number:04}", "namespace": f"team-{number % 40}", "creationTimestamp": moment}
        return {**self.manifest, "metadata": metadata, "status": status}

    async def answer(self, request: web.Request) -> web.Response:
        """Return a page of the list."""
        start = int(request.query.get("continue") or 0)
        end = min(start + int(request.query.get("limit") or PIPELINES), PIPELINES)
        if start == 0:
            self.lists += 1
        items = [self.pipeline(number) for number in range(start, end)]
        metadata = {"resourceVersion": "1", "continue": str(end) if end < PIPELINES else ""}
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": f"{KIND}List", "metadata": metadata, "items": items}
        return web.json_response(body)


@asynccontextmanager
async def api_server(fleet: Fleet) -> AsyncIterator[str]:
    """Serve on loopback for the block."""
    made = web.Application()
    made.router.add_get(f"/apis/{GROUP}/{VERSION}/{PLURAL}", fleet.answer)
    runner = web.AppRunner(made)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def console_of(server: str) -> AsyncIterator[tuple[int, str]]:
    """Run `fencepost console` for the block; yield its process's number and the address that it prints."""
    named = {"clusters": {"server": server}, "users": {}, "contexts": {"cluster": "own", "user": "own"}}
    parts = {kind: [{"name": "own", kind.removesuffix("s"): found}] for kind, found in named.items()}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as kubeconfig:
        json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "own", **parts}, kubeconfig)
        kubeconfig.flush()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fencepost_cli", "console", stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "KUBECONFIG": kubeconfig.name},
        )  # fmt: skip
        try:
            line = (await process.stdout.readline()).decode() if process.stdout else ""
            found = re.search(r"http://\S+", line)
            if found is None:
                raise RuntimeError(f"`fencepost console` printed no address: {line!r}")
            yield process.pid, found[0]
        finally:
            process.terminate()
            await process.wait()


async def measured() -> dict[str, list[float]]:
    """Return the values of each figure, in milliseconds."""
    program = chromium()
    if program is None:
        raise RuntimeError("there is no Chromium: apt-get install chromium")
    fleet, found = Fleet(), dict[str, list[float]]()
    async with api_server(fleet) as server, console_of(server) as (pid, address), browsing(program) as page:
        spent = Spent(page, pid, found)
        await page.call("Performance.enable", timeDomain="threadTicks")
        await page.size(1280, 720)
        await page.open(address)
        await page.until(f"{_ROWS} > 0 && location.search === ''", "the first list")
        for _ in range(ROUNDS):
            seen = await _refreshed(page, fleet.lists)
            async with spent.on("refresh"):
                await _refreshed(page, seen)
        for number in range(ROUNDS):
            for words in (f"team-{number}/", ""):
                async with spent.on("filter"):
                    await page.value(_FILTER.replace("WORDS", json.dumps(words)))
    return found


@dataclass(frozen=True, slots=True)
class Spent:
    """Notes the CPU time of the page's thread, and of the console's process."""

    page: Page
    console: int
    found: dict[str, list[float]]

    @asynccontextmanager
    async def on(self, what: str) -> AsyncIterator[None]:
        """Note what the block takes."""
        before = await _cpu(self.page), _ticks(self.console)
        yield
        for side, taken in (
            ("browser", await _cpu(self.page) - before[0]),
            ("console", (_ticks(self.console) - before[1]) * _TICK),
        ):
            self.found.setdefault(f"{what}, {side}", []).append(taken)


async def _refreshed(page: Page, seen: int) -> int:
    """Wait until the page shows a list after this one, and return which."""
    await page.until(f"Number({_SHOWN}) > {seen}", "a refresh")
    await page.value(_DRAWN)
    return int(await page.value(_SHOWN))


async def _cpu(page: Page) -> float:
    """Return the milliseconds of CPU time that the page's thread has taken."""
    found = (await page.call("Performance.getMetrics"))["metrics"]
    return 1000 * next(float(one["value"]) for one in found if one["name"] == "TaskDuration")


def _ticks(pid: int) -> int:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(words[11]) + int(words[12])


def measure(console: Console) -> Result:
    """Measure it."""
    console.line(f"the console with {PIPELINES:,} pipelines")
    samples = [Sample(name, "ms", values) for name, values in asyncio.run(measured()).items()]
    return Result(NAME, samples, {"pipelines": PIPELINES})
