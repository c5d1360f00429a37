"""What a browser makes of a page: its elements, as Python's parser of HTML reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"meta", "link", "input", "img", "br", "hr"})


@dataclass(frozen=True, slots=True)
class Element:
    tag: str
    attributes: dict[str, str]
    text: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self.open: list[Element] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: text or "" for name, text in attrs})
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop().tag != tag:
            pass

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text.append(data)


def elements(page: str) -> list[Element]:
    """Return the elements of a page in their order."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return reader.elements


def skeleton(page: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return the tags with the names of their attributes: what no tenant's text may change."""
    return [(element.tag, tuple(element.attributes)) for element in elements(page)]
