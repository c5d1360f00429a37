"""All that the demo, the loader and the bench print goes through here."""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TextIO

REDRAW_SECONDS: Final = 0.25
"""A terminal's live line is drawn again this often at most; elsewhere it is a line now and then."""
LINE_SECONDS: Final = 1.0
UNCHANGED_SECONDS: Final = 10.0
"""Away from a terminal, a live line that says the same as before is repeated so seldom: a sign of life, no more."""
_ERASE: Final = "\r\x1b[2K"


@dataclass(slots=True)
class Console:
    """Lines that begin with the seconds since it was made, and one live line that a terminal redraws in place."""

    stream: TextIO = field(default_factory=lambda: sys.stdout)
    clock: Callable[[], float] = time.monotonic
    line_seconds: float = LINE_SECONDS
    began: float = field(init=False)
    _drawn_at: float = field(init=False, default=float("-inf"))
    _drawn: str = field(init=False, default="")
    _live: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.began = self.clock()

    def line(self, text: str) -> None:
        """One line with the time."""
        self.plain(f"[{self.clock() - self.began:6.1f}s] {text}")

    def plain(self, text: str = "") -> None:
        """One line as it is."""
        self._write(("" if not self._live else _ERASE) + text + "\n")
        self._live = False

    def live(self, text: str) -> None:
        """Show the state of things now; most calls between two redraws show nothing."""
        now = self.clock()
        terminal = self.stream.isatty()
        pause = REDRAW_SECONDS if terminal else self.line_seconds if text != self._drawn else UNCHANGED_SECONDS
        if now - self._drawn_at < pause:
            return
        self._drawn_at, self._drawn = now, text
        if terminal:
            self._write(f"{_ERASE}[{now - self.began:6.1f}s] {text}")
            self._live = True
        else:
            self.line(text)

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Columns as wide as their widest cell; the first to the left, the others to the right."""
        cells = [tuple(headings), *(tuple(row) for row in rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
        for number, row in enumerate(cells):
            first, *others = (
                text.ljust(width) if column == 0 else text.rjust(width)
                for column, (text, width) in enumerate(zip(row, widths, strict=True))
            )
            self.plain("  ".join([first, *others]).rstrip())
            if number == 0:
                self.plain("  ".join("-" * width for width in widths))

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()
