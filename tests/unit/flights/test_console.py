import io

from flights.console import Console


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_begins_with_the_time() -> None:
    stream, time = io.StringIO(), Time()
    console = Console(stream, time)
    time.now = 102.5

    console.line("hello")

    assert stream.getvalue() == "[   2.5s] hello\n"


def test_away_from_a_terminal_the_live_line_is_a_line_a_second() -> None:
    stream, time = io.StringIO(), Time()
    console = Console(stream, time)
    for second in (0.0, 0.4, 0.9, 1.1):
        time.now = 100.0 + second
        console.live(f"at {second}")

    assert stream.getvalue() == "[   0.0s] at 0.0\n[   1.1s] at 1.1\n"


def test_without_a_terminal_an_unchanged_line_is_printed_rarely() -> None:
    stream, time = io.StringIO(), Time()
    console = Console(stream, time)
    for second in range(14):
        time.now = 100.0 + second
        console.live("same" if second < 12 else "other")

    assert [line.split("] ")[1] for line in stream.getvalue().splitlines()] == ["same", "same", "other"]


def test_on_a_terminal_it_is_drawn_again_and_makes_room_for_a_line() -> None:
    stream, time = Terminal(), Time()
    console = Console(stream, time)
    console.live("one")
    time.now = 101.0
    console.live("two")
    console.line("event")

    assert stream.getvalue() == "\r\x1b[2K[   0.0s] one\r\x1b[2K[   1.0s] two\r\x1b[2K[   1.0s] event\n"


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    stream = io.StringIO()
    Console(stream).table(["name", "ms"], [["a", "1.25"], ["longer", "10"]])

    assert stream.getvalue().splitlines() == ["name      ms", "------  ----", "a       1.25", "longer    10"]
