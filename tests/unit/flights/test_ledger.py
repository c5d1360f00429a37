from pathlib import Path

import pytest

from flights.ledger import Ledger


def ledger() -> Ledger:
    made = Ledger("flights", "flights")
    for partition, offset, number in [(1, 0, 0), (0, 5, 1), (0, 7, 2), (1, 1, 3)]:
        made.add(partition, offset, number)
    return made


def test_an_event_is_found_by_its_place() -> None:
    made = ledger()

    assert made.number_at(0, 7) == 2
    assert made.number_at(0, 6) is None
    assert made.number_at(2, 0) is None


def test_a_ledger_has_where_to_continue_and_where_the_log_ends() -> None:
    made = ledger()

    assert len(made) == 4
    assert made.next_number == 4
    assert made.ends == {0: 8, 1: 2}


def test_what_kafka_lost_is_left_out_and_nothing_else() -> None:
    made = ledger()

    assert list(made.without(0, 0, 7)) == [(1, 0, 0), (1, 1, 3), (0, 7, 2)]
    assert len(made.without(2, 0, 100)) == len(made) == 4


def test_an_empty_one_begins_at_the_beginning() -> None:
    assert Ledger("flights", "flights").next_number == 0


def test_a_report_out_of_order_is_an_error() -> None:
    made = ledger()

    with pytest.raises(ValueError, match="offset 7 was confirmed after 7"):
        made.add(0, 7, 9)


def test_it_is_read_as_it_was_saved(tmp_path: Path) -> None:
    ledger().save(tmp_path / "of" / "flights.ledger")

    again = Ledger.read(tmp_path / "of" / "flights.ledger")

    assert again == ledger()
    assert list(again) == list(ledger())


@pytest.mark.parametrize("content", [b"", b"{}\n", b"\x00\n"])
def test_another_file_is_not_a_ledger(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)

    with pytest.raises(ValueError, match="is not a ledger"):
        Ledger.read(tmp_path / "file")


def test_half_a_file_is_not_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "flights.ledger"
    ledger().save(path)
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(ValueError, match=r"ends too early|multiple of"):
        Ledger.read(path)
