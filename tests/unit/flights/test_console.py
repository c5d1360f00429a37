import io

import pytest

from fakes.clock import Clock
from flights.console import Console


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "said", "printed"),
    [
        pytest.param(io.StringIO(), [(2.5, "line", "hello")], "[   2.5s] hello\n", id="a line begins with the time"),
        pytest.param(
            io.StringIO(),
            [(second, "live", f"at {second}") for second in (0.0, 0.4, 0.9, 1.1)],
            "[   0.0s] at 0.0\n[   1.1s] at 1.1\n",
            id="away from a terminal the live line is a line a second",
        ),
        pytest.param(
            io.StringIO(),
            [(second, "live", "same" if second < 12 else "other") for second in range(14)],
            "[   0.0s] same\n[  10.0s] same\n[  12.0s] other\n",
            id="without a terminal an unchanged line is printed rarely",
        ),
        pytest.param(
            Terminal(),
            [(0.0, "live", "one"), (1.0, "live", "two"), (1.0, "line", "event")],
            "\r\x1b[2K[   0.0s] one\r\x1b[2K[   1.0s] two\r\x1b[2K[   1.0s] event\n",
            id="on a terminal it is drawn again and makes room for a line",
        ),
    ],
)
def test_what_is_printed_when(stream: io.StringIO, said: list[tuple[float, str, str]], printed: str) -> None:
    clock = Clock(seconds=100.0)
    console = Console(stream, clock.monotonic)
    for second, kind, text in said:
        clock.seconds = 100.0 + second
        getattr(console, kind)(text)
    assert stream.getvalue() == printed


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    stream = io.StringIO()
    Console(stream).table(["name", "ms"], [["a", "1.25"], ["longer", "10"]])

    assert stream.getvalue().splitlines() == ["name      ms", "------  ----", "a       1.25", "longer    10"]
