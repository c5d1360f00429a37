"""Chromium without a window, driven by its DevTools protocol: pages, keys, pictures, and what goes wrong in a page."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

STARTS_WITHIN: Final = 60.0
ANSWERS_WITHIN: Final = 60.0
_PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
_CODES: Final = {"Enter": 13, "Escape": 27, "Tab": 9}


def chromium() -> str | None:
    """Return the program, None where it is not installed."""
    return next((found for name in _PROGRAMS if (found := shutil.which(name))), None)


@dataclass(slots=True)
class Page:
    """One page. `problems` are errors of scripts, what the page's policy refused, and failed loads."""

    socket: aiohttp.ClientWebSocketResponse
    problems: list[str] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _answers: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the answer of one command of the protocol."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self.socket.send_json({"id": number, "method": method, "params": parameters})
        return await asyncio.wait_for(answer, ANSWERS_WITHIN)

    async def open(self, url: str) -> None:
        """Go to an address."""
        await self.call("Page.navigate", url=url)

    async def value(self, script: str) -> Any:
        """Return what a script of the test gives."""
        found = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, script: str, what: str, *, seconds: float = ANSWERS_WITHIN) -> None:
        """Wait until a script gives true."""
        deadline = time.monotonic() + seconds
        while True:
            with suppress(AssertionError):  # the page is being replaced
                if await self.value(script):
                    return
            assert time.monotonic() < deadline, f"{what} did not happen; problems: {self.problems}"
            await asyncio.sleep(0.05)

    async def press(self, key: str) -> None:
        """Press and release a key, as a user does."""
        text = "\r" if key == "Enter" else "" if key in _CODES else key
        code = _CODES.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **typed)

    async def prefer(self, scheme: str) -> None:
        """Make the user prefer 'light' or 'dark'."""
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def size(self, width: int, height: int) -> None:
        """Set the size of the window."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def picture(self, path: Path) -> None:
        """Write what the window shows, as PNG."""
        found = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))  # noqa: ASYNC240 - of a test

    async def listen(self) -> None:
        """Give the answers to those who wait, and remember the problems."""
        async for message in self.socket:
            event = message.json()
            if (number := event.get("id")) in self._answers:
                answer = self._answers.pop(number)
                if "error" in event:
                    answer.set_exception(AssertionError(event["error"]))
                else:
                    answer.set_result(event.get("result", {}))
            else:
                self._note(event.get("method"), event.get("params", {}))

    def _note(self, method: str | None, found: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(found["exceptionDetails"].get("exception", found["exceptionDetails"])))
        if method == "Log.entryAdded" and found["entry"]["level"] in {"error", "warning"}:
            self.problems.append(f"{found['entry']['text']} {found['entry'].get('url', '')}")
        if method == "Audits.issueAdded":
            self.problems.append(str(found["issue"]))


@asynccontextmanager
async def browsing(program: str) -> AsyncIterator[Page]:
    """Open a browser with one empty page for the block."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--hide-scrollbars", "--remote-debugging-port=0",
            f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            port = await _port(Path(profile))
            async with aiohttp.ClientSession() as session:
                targets = await (await session.get(f"http://127.0.0.1:{port}/json/list")).json()
                address = next(one["webSocketDebuggerUrl"] for one in targets if one["type"] == "page")
                async with session.ws_connect(address, max_msg_size=0) as socket:
                    page = Page(socket)
                    listening = asyncio.create_task(page.listen())
                    for domain in ("Page", "Runtime", "Log", "Audits"):
                        await page.call(f"{domain}.enable")
                    yield page
                    listening.cancel()
        finally:
            process.terminate()
            await process.wait()


async def _port(profile: Path) -> int:
    """Return the port that the browser has chosen."""
    deadline = time.monotonic() + STARTS_WITHIN
    file = profile / "DevToolsActivePort"
    while not (text := _text(file)):
        assert time.monotonic() < deadline, "the browser did not start"
        await asyncio.sleep(0.1)
    return int(text.split()[0])


def _text(file: Path) -> str:
    return file.read_text() if file.exists() else ""
