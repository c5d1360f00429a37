"""The documentation as a site: every link and anchor leads somewhere, and nothing comes from another host."""

from __future__ import annotations

import json
import os
import posixpath
import re
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt

from docs_site.markdown import with_links, with_wide_lists
from docs_site.repository import moved, site_path
from generators.reference import ROOT

LOADED = {"script": "src", "link": "href", "img": "src", "source": "src", "iframe": "src"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "dev")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder


@dataclass
class Page(HTMLParser):
    """The links, anchors and loaded files of a page."""

    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    loaded: list[str] = field(default_factory=list)
    articles: int = 0
    items: int = 0
    """Of lists in the page's text."""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self.articles += tag == "article"
        self.items += tag == "li" and self.articles > 0
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADED and LOADED[tag] in given and given.get("rel") != "canonical":
            self.loaded.append(given[LOADED[tag]])

    def handle_endtag(self, tag: str) -> None:
        self.articles -= tag == "article"


def read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text())
    return page


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    return {path.relative_to(site).as_posix(): read(path) for path in site.rglob("*.html")}


def leads_somewhere(link: str, name: str, site: Path, pages: dict[str, Page]) -> bool:
    target = urlsplit(link)
    if target.scheme or target.netloc:
        return True
    folder, path = posixpath.dirname(name), unquote(target.path)
    found = posixpath.normpath(posixpath.join(folder, path)) if path else name
    if found in pages and target.fragment not in {"", "__skip"}:
        return unquote(target.fragment) in pages[found].anchors
    return (site / found).exists()


def test_every_link_of_a_page_leads_somewhere(site: Path, pages: dict[str, Page]) -> None:
    links = [(name, link) for name, page in pages.items() if name != "404.html" for link in page.links]
    assert [f"{name}: {link}" for name, link in links if not leads_somewhere(link, name, site, pages)] == []


def test_nothing_is_loaded_from_another_host(site: Path, pages: dict[str, Page]) -> None:
    assert [url for page in pages.values() for url in page.loaded if urlsplit(url).netloc] == []
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert "url(http" not in styles
    assert "@import" not in styles


def test_each_page_of_the_documentation_is_in_the_site_and_can_be_searched(site: Path, pages: dict[str, Page]) -> None:
    found = {
        entry["location"].partition("#")[0]
        for entry in json.loads((site / "search/search_index.json").read_text())["docs"]
    }
    sources = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "examples/README.md"]
    wanted = {site_path(path.relative_to(ROOT).as_posix()).removesuffix(".md") + ".html" for path in sources}
    wanted = {path.replace("README.html", "index.html") for path in wanted}
    assert wanted <= pages.keys()
    assert wanted <= found


def test_each_reader_has_a_part_of_the_navigation(site: Path) -> None:
    tabs = re.findall(r'<li class="md-tabs__item.*?<a.*?>(.*?)</a>', (site / "index.html").read_text(), re.DOTALL)
    assert [tab.strip() for tab in tabs] == ["Start", "Authors", "Platform", "On call", "How it works"]


def test_lists_keep_their_items(pages: dict[str, Page]) -> None:
    """Python-Markdown reads other lists than GitHub does."""
    wrong = []
    for path in (*ROOT.glob("docs/*.md"), ROOT / "SECURITY.md", ROOT / "README.md"):
        tokens = MarkdownIt("commonmark").enable("table").parse(path.read_text())
        wanted = sum(token.type == "list_item_open" for token in tokens)
        name = site_path(path.relative_to(ROOT).as_posix()).removesuffix(".md") + ".html"
        if pages[name].items != wanted:
            wrong.append(f"{name}: {pages[name].items} items, not {wanted}")
    assert wrong == []


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("text\n- one\n- two\n", "text\n\n-   one\n-   two\n"),
        ("- one\n  - inner\n    more\n", "-   one\n    -   inner\n        more\n"),
        (
            "1. one\n   ```\n   code\n     more\n   ```\n2. two\n",
            "1.  one\n\n    ```\n    code\n      more\n    ```\n\n2.  two\n",
        ),
        (
            "1. one\n   ```\n   code\n   ```\n   more\n2. two\n",
            "1.  one\n\n    ```\n    code\n    ```\n\n    more\n\n2.  two\n",
        ),
        ("- one\nlazy\n", "-   one\n    lazy\n"),
        ("```\n- code\n  more\n```\n", "```\n- code\n  more\n```\n"),
    ],
)
def test_a_list_gets_four_spaces_a_level(given: str, made: str) -> None:
    assert with_wide_lists(given) == made


def test_links_in_code_stay() -> None:
    text = "[a](b.md)\n```\n[a](b.md)\n```\n![c\nd](b.md#e)"
    assert with_links(text, lambda target: f"x/{target}") == "[a](x/b.md)\n```\n[a](b.md)\n```\n![c\nd](x/b.md#e)"


@pytest.mark.parametrize(
    ("page", "target", "there"),
    [
        ("docs/authors.md", "../SECURITY.md#threat-model", "SECURITY.md#threat-model"),
        (
            "docs/runbooks/README.md",
            "../../examples/departures/pipeline.yaml",
            "../examples/departures/pipeline.yaml.md",
        ),
        ("README.md", "docs/sinks.md", "sinks.md"),
        ("SECURITY.md", "Dockerfile", "Dockerfile.md"),
        ("docs/authors.md", "../README.md#install-it-on-your-cluster", "index.md#install-it-on-your-cluster"),
        ("docs/pages.md", "runbooks/", "runbooks/README.md"),
        ("docs/authors.md", "https://example.com/", "https://example.com/"),
    ],
)
def test_a_link_leads_to_its_target_in_the_site(page: str, target: str, there: str) -> None:
    assert moved(target, page=page) == there
