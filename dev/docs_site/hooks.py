"""What MkDocs calls while it builds the site; mkdocs.yml names this file."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from docs_site import repository
from docs_site.markdown import with_links, with_wide_lists

PROJECT_PAGES: Final = (
    "README.md",
    "SECURITY.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "ROADMAP.md",
    "examples/README.md",
)
"""Pages outside of docs/ that the navigation has."""
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_PLACES: dict[str, str] = {}
"""The repository's path by the path in the site, of the pages of this build."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace the stars of the navigation by pages."""
    docs = repository.ROOT / repository.DOCS
    pages = sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))
    named = set(_leaves(config.nav))
    config.nav = _expanded(config.nav, pages, named)
    return config


def _leaves(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [leaf for part in parts for leaf in _leaves(part)]


def _expanded(nav: Any, pages: list[str], named: set[str]) -> Any:
    if isinstance(nav, dict):
        return {title: _expanded(part, pages, named) for title, part in nav.items()}
    if not isinstance(nav, list):
        return nav
    made: list[Any] = []
    for part in nav:
        if isinstance(part, str) and "*" in part:
            found = [page for page in pages if fnmatch(page, part) and page not in named]
            named |= set(found)
            made += found
        else:
            expanded = _expanded(part, pages, named)
            made += [] if isinstance(expanded, dict) and [] in expanded.values() else [expanded]
    return made


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside of docs/ that the navigation has or a page links to, and those that they link to."""
    _PLACES.clear()
    for file in files.documentation_pages():
        _PLACES[file.src_uri] = f"{repository.DOCS}/{file.src_uri}"
    texts = {place: (repository.ROOT / place).read_text() for place in _PLACES.values()}
    waiting = [*PROJECT_PAGES, *(found for place, text in texts.items() for found in _linked(text, place))]
    while waiting:
        place = waiting.pop()
        path = repository.site_path(place)
        if path in _PLACES:
            continue
        if path.endswith("/README.md") and not place.endswith(".md"):
            place = path  # a folder with a page of its own
        _PLACES[path] = place
        text = repository.content(place)
        inclusion = InclusionLevel.INCLUDED if place in PROJECT_PAGES else InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, path, content=text, inclusion=inclusion))
        if place.endswith(".md"):
            waiting += _linked(text, place)
    return files


def _linked(text: str, place: str) -> list[str]:
    found = (repository.outside(target, page=place) for target in _LINK.findall(text))
    return [path for path in found if path is not None]


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Return the page in the Markdown that MkDocs reads, with links to where its targets are in the site."""
    place = _PLACES[page.file.src_uri]
    return with_wide_lists(with_links(markdown, lambda target: repository.moved(target, page=place)))
