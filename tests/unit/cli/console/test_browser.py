"""The console in a real browser: its scripts, its keys, its policy, and a tenant's text that tries to run."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn

from fencepost_cli.access import Overrides
from fencepost_cli.console.application import application
from fencepost_cli.console.open_stores import OpenStores
from harness.browser import browsing, chromium
from unit.cli.console.bodies import TOKEN, Lists, pipeline
from unit.cli.console.shop import shop
from unit.cli.console.test_fleet_page import HOSTILE
from unit.cli.console.test_pipeline_page import PAGE, seeded

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(chromium() is None, reason="needs Chromium: apt-get install chromium"),
]
MARK = "window.attacked = true"
ATTACKS = (
    f"<script>{MARK}</script>", f"<img src=x onerror='{MARK}'>", f'" onmouseover="{MARK}" autofocus onfocus="{MARK}',
    f"<div hx-get=\"/\" hx-trigger=load hx-on:htmx:load='{MARK}'>", *HOSTILE,
)  # fmt: skip
LOADED = "document.readyState === 'complete' && document.querySelectorAll('.loading').length === 0"


@contextmanager
def served(lists: Lists) -> Iterator[str]:
    """Serve for the block, at this address."""
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        port: int = own.getsockname()[1]
        stores = OpenStores(lists.world.ports, lists.world, Overrides(), lists.notes.append)
        made = application(fleet=lists.latest, objects=lists.world, stores=stores, token=TOKEN, port=port)
        server = uvicorn.Server(uvicorn.Config(made, lifespan="off", ws="none", log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [own]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()


async def test_keys_filters_and_refreshes() -> None:
    lists = Lists([pipeline(f"p{number}", "shop", lag=number) for number in range(1000)])
    with served(lists) as url:
        async with browsing(_program()) as page:
            await page.open(f"{url}/?token={TOKEN}")
            await page.until("document.querySelectorAll('a.pick').length === 200", "the list")
            await page.until(f"{LOADED} && location.search === ''", "the page")
            await page.press("j")
            await page.press("j")
            await page.press("k")
            assert await page.value("document.activeElement.className") == "pick"
            first = await page.value("document.activeElement.getAttribute('href')")
            lists.now += 100
            lists.bodies = [pipeline(f"p{number}", "shop", lag=5000 + number) for number in range(1000)]
            await page.until("document.body.textContent.includes('5,100')", "the refresh")
            assert await page.value("document.activeElement.getAttribute('href')") == first
            await page.press("/")
            for key in "p99":
                await page.press(key)
            await page.until("document.querySelectorAll('a.pick').length === 11", "the filter")
            await page.press("Escape")
            await page.press("?")
            assert await page.value("document.getElementById('help').open")
            await page.press("Escape")
            await page.until("!document.getElementById('help').open", "the help's end")
            await page.press("j")
            await page.press("Enter")
            await page.until(f"location.pathname.startsWith('/pipelines/shop/p9') && {LOADED}", "the pipeline's page")
            await page.press("u")
            await page.until("location.pathname === '/'", "the fleet")
            await page.until("document.querySelectorAll('a.pick').length === 200", "the list")
            for shown in (400, 600, 800, 1000):
                await page.value("scrollTo(0, document.documentElement.scrollHeight)")
                await page.until(f"document.querySelectorAll('a.pick').length === {shown}", "the rows below")
            await page.until("document.querySelector('a.more') === null", "the end of the list")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_pipelines_page_loads_its_parts_and_draws_the_chart(scheme: str) -> None:
    with served(seeded()) as url:
        async with browsing(_program()) as page:
            await page.prefer(scheme)
            await page.open(f"{url}/?token={TOKEN}")
            await page.until(f"{LOADED} && location.search === ''", "the console")
            await page.open(f"{url}{PAGE}")
            await page.until("document.querySelector('.chart canvas') !== null", "the chart")
            await page.until(LOADED, "all parts")
            assert "--" not in await page.value("document.querySelector('.u-legend').textContent")
            assert await page.value(CONTRAST) == []
            assert await page.value(NAMELESS) == []
            assert page.problems == []


async def test_no_text_of_a_tenant_runs() -> None:
    lists = seeded(text="".join(ATTACKS))
    lists.bodies = [pipeline(f"p{number}", text, message=text) for number, text in enumerate(ATTACKS)]
    with served(lists) as url:
        async with browsing(_program()) as page:
            await page.open(f"{url}/?token={TOKEN}")
            await page.until("document.querySelectorAll('a.pick').length > 3", "the list")
            for path in ("/", PAGE, f"{PAGE}/letters/orders/0/7"):
                await page.open(f"{url}{path}")
                await page.until(f"location.pathname === '{path}' && {LOADED}", "the page")
                assert await page.value("window.attacked ?? null") is None
                assert await page.value("document.querySelectorAll('iframe, main script').length") == 0
            assert page.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_pages_have_pictures_for_the_docs(scheme: str, tmp_path: Path) -> None:
    """With FENCEPOST_PICTURES=docs/pictures they are those of the docs."""
    folder = Path(os.environ.get("FENCEPOST_PICTURES", tmp_path))
    with served(shop()) as url:
        async with browsing(_program()) as page:
            await page.prefer(scheme)
            await page.size(1280, 720)
            await page.open(f"{url}/?token={TOKEN}")
            await page.until(f"document.querySelectorAll('a.pick').length === 40 && {LOADED}", "the fleet")
            await page.picture(folder / f"console-fleet-{scheme}.png")
            await page.size(1280, 1446)
            await page.open(f"{url}{PAGE}")
            await page.until(f"document.querySelector('.chart canvas') !== null && {LOADED}", "the page")
            await page.picture(folder / f"console-pipeline-{scheme}.png")
            await page.size(
                1280, await page.value(f"document.querySelector('details:not([open])').open = true; {REST}")
            )
            await page.value("scrollTo(0, document.documentElement.scrollHeight)")
            await page.picture(folder / f"console-trials-{scheme}.png")
            assert await page.value(CONTRAST) == []
            assert [one for one in page.problems if "favicon" not in one] == []


async def test_a_server_that_ends_is_reported(tmp_path: Path) -> None:
    async with browsing(_program()) as page:
        with served(Lists([pipeline()])) as url:
            await page.open(f"{url}/?token={TOKEN}")
            await page.until(f"document.querySelectorAll('a.pick').length === 1 && {LOADED}", "the list")
        await page.until("!document.getElementById('lost').hidden", "the message")
        assert "does not answer" in await page.value("document.getElementById('lost').textContent")
        await page.picture(tmp_path / "lost.png")
        assert (tmp_path / "lost.png").read_bytes().startswith(b"\x89PNG")


REST = (
    "Math.ceil(document.documentElement.getBoundingClientRect().height)"
    " - document.getElementById('trials-title').closest('section').offsetTop + 8"
)
"""The pixels from the trials to the end of the page."""
CONTRAST = r"""
(() => {
  const channel = (value) => {
    const part = value / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  };
  const luminance = ([red, green, blue]) => 0.2126 * channel(red) + 0.7152 * channel(green) + 0.0722 * channel(blue);
  const parse = (text) => {
    const found = text.match(/[\d.]+/g).map(Number);
    return found.length === 4 && found[3] === 0 ? null : found;
  };
  const back = (one) => {
    for (; one; one = one.parentElement) {
      const found = parse(getComputedStyle(one).backgroundColor);
      if (found) return found;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const one of document.querySelectorAll("body *")) {
    if (one.closest("svg, canvas, .hidden-text, .skip, dialog:not([open])")) continue;
    if (![...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
    const both = [luminance(parse(getComputedStyle(one).color)), luminance(back(one))].sort((a, b) => b - a);
    if ((both[0] + 0.05) / (both[1] + 0.05) < 4.5) low.push(one.outerHTML.slice(0, 120));
  }
  return low;
})()
"""
"""Text whose contrast is below 4.5, that of WCAG AA."""
NAMELESS = """
[...document.querySelectorAll("a, button, input:not([type=hidden]), select, img, table, [role=img]")].filter((one) =>
  !(one.textContent.trim() || one.getAttribute("aria-label") || one.hasAttribute("alt") || one.labels?.length)
).map((one) => one.outerHTML.slice(0, 120))
"""
"""What a screen reader has no name for."""


def _program() -> str:
    found = chromium()
    assert found is not None
    return found
