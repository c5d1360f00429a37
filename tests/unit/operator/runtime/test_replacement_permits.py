"""Replacements of silent drivers: at once where few are, at a rate where many are, and in turns of the namespaces."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from fencepost_operator.api import ObjectKey
from fencepost_operator.runtime.permits.replacement import ASKS_AGAIN, FEW, PERIOD, REMEMBERED, ReplacementPermits

NOW = 1000.0
"""Seconds of the monotonic clock."""


@pytest.fixture
def permits() -> ReplacementPermits:
    return ReplacementPermits()


def keys(namespace: str, count: int, first: int = 0) -> list[ObjectKey]:
    return [ObjectKey(namespace, f"p{number}") for number in range(first, first + count)]


def note(permits: ReplacementPermits, found: Iterable[ObjectKey], *, is_alive: bool, now: float = NOW) -> None:
    for key in found:
        permits.note(key, is_alive, now)


def taken(
    permits: ReplacementPermits, found: Iterable[ObjectKey], now: float = NOW, *, epoch: int = 1
) -> list[ObjectKey]:
    return [key for key in found if permits.take(key, epoch, now)]


def test_few_are_replaced_at_once_also_where_they_are_all(permits: ReplacementPermits) -> None:
    silent = keys("shop", FEW)
    note(permits, silent, is_alive=False)
    assert taken(permits, silent) == silent


def test_the_drivers_of_a_lost_node_are_replaced_at_once_where_most_others_are_alive(
    permits: ReplacementPermits,
) -> None:
    silent = keys("shop", 20)
    note(permits, silent, is_alive=False)
    note(permits, keys("shop", 61, first=20), is_alive=True)
    assert taken(permits, silent) == silent
    assert (permits.silent(NOW), permits.waiting(NOW)) == (20, 0)


def test_where_many_are_silent_few_are_replaced_per_period_and_none_is_held_back_forever(
    permits: ReplacementPermits,
) -> None:
    left, at = keys("shop", 20), NOW
    note(permits, keys("shop", 60, first=20), is_alive=True)
    while left:
        note(permits, left, is_alive=False, now=at)
        now_taken = taken(permits, left, at)
        assert len(now_taken) == min(FEW, len(left)) or at > NOW + REMEMBERED
        left = [key for key in left if key not in now_taken]
        assert permits.waiting(at) == len(left)
        at += PERIOD
    assert at <= NOW + PERIOD * (20 / FEW + 1)


def test_those_that_were_replaced_still_count(permits: ReplacementPermits) -> None:
    """Where they were replaced before the others were missed, the others wait nevertheless."""
    silent = keys("shop", 8)
    for number, key in enumerate(silent):
        note(permits, [key], is_alive=False, now=NOW + number)
    note(permits, keys("shop", 8, first=8), is_alive=True)
    assert len(taken(permits, silent[:FEW])) == FEW
    assert not taken(permits, silent[FEW:], NOW + 10)


def test_who_may_and_asks_again_still_may(permits: ReplacementPermits) -> None:
    """The status could not be written: the same decision comes again."""
    silent = keys("shop", 10)
    note(permits, silent, is_alive=False)
    first = taken(permits, silent)
    assert taken(permits, silent, NOW + 1) == first


def test_a_namespace_of_silent_drivers_holds_up_no_other_one(permits: ReplacementPermits) -> None:
    """Injected: a tenant whose image gives no heartbeats."""
    hostile = keys("hostile", 500)
    note(permits, hostile, is_alive=False)
    first = taken(permits, hostile)
    assert len(first) == FEW
    silent = keys("shop", FEW)
    note(permits, silent, is_alive=False)
    assert taken(permits, silent) == silent
    assert taken(permits, hostile, NOW + 1) == first, "no further ones"


def test_a_tenant_with_many_live_drivers_does_not_hide_that_those_of_others_are_silent(
    permits: ReplacementPermits,
) -> None:
    note(permits, keys("large", 1000), is_alive=True)
    silent = keys("shop", 10)
    note(permits, silent, is_alive=False)
    assert len(taken(permits, silent)) == FEW


def test_many_namespaces_with_a_few_silent_drivers_each_take_turns(permits: ReplacementPermits) -> None:
    """A database stalls that the drivers of all namespaces use."""
    names = [f"team-{number}" for number in range(20)]
    hostile = keys("hostile", 50)
    silent = [key for name in names for key in keys(name, 2)]
    given: dict[ObjectKey, float] = {}
    for second in range(int(7 * PERIOD)):
        left = [key for key in hostile + silent if key not in given]
        note(permits, left, is_alive=False, now=NOW + second)
        given |= dict.fromkeys(taken(permits, left, NOW + second), NOW + second)
    assert [key.namespace for key in given] == ["hostile", *names], "each namespace comes once"
    assert sum(at < NOW + PERIOD for at in given.values()) == FEW


def test_a_namespace_that_does_not_ask_any_more_loses_its_turn(permits: ReplacementPermits) -> None:
    everyone = [key for number in range(20) for key in keys(f"team-{number}", 1)]
    note(permits, everyone, is_alive=False)
    *_, last = first = taken(permits, everyone)
    later = NOW + PERIOD
    note(permits, everyone, is_alive=False, now=later)
    waiting = next(key for key in everyone if key not in first)
    assert not permits.take(waiting, 1, later - 1)
    assert not permits.take(last, 1, later), "the other one comes first"
    assert permits.take(last, 1, later + ASKS_AGAIN)


def test_a_lost_node_with_a_driver_of_each_of_some_namespaces_slows_nothing_down(permits: ReplacementPermits) -> None:
    silent = [key for number in range(20) for key in keys(f"team-{number}", 1)]
    note(permits, silent, is_alive=False)
    note(permits, [key for number in range(20) for key in keys(f"team-{number}", 4, first=1)], is_alive=True)
    assert taken(permits, silent) == silent


def test_what_was_seen_long_ago_does_not_count(permits: ReplacementPermits) -> None:
    note(permits, keys("shop", 100), is_alive=True)
    silent = keys("shop", 10, first=100)
    later = NOW + REMEMBERED
    note(permits, silent, is_alive=False, now=later)
    assert len(taken(permits, silent, later)) == FEW
    assert permits.silent(later + REMEMBERED) == 0


def test_what_is_not_known_changes_nothing(permits: ReplacementPermits) -> None:
    silent = keys("shop", 10)
    note(permits, silent, is_alive=False)
    permits.note(silent[0], None, NOW + 1)
    assert permits.silent(NOW + 1) == 10
    permits.note(silent[0], True, NOW + 1)
    assert permits.silent(NOW + 1) == 9


def test_a_pipeline_that_is_created_again_gets_no_other_permit(permits: ReplacementPermits) -> None:
    """Injected: a tenant who deletes and creates pipelines."""
    silent = keys("shop", 10)
    note(permits, silent, is_alive=False)
    for key in taken(permits, silent):
        permits.forget(key)
    note(permits, silent, is_alive=False)
    assert len(taken(permits, silent, NOW + 1)) == FEW, "the same ones"


def test_the_next_run_of_a_pipeline_needs_a_permit_of_its_own(permits: ReplacementPermits) -> None:
    silent = keys("shop", 10)
    note(permits, silent, is_alive=False)
    first = taken(permits, silent)
    assert not taken(permits, first, NOW + 20, epoch=2)
    assert taken(permits, first, NOW + 25) == first, "of the runs that have one"
    later = NOW + PERIOD
    note(permits, silent, is_alive=False, now=later)
    assert taken(permits, silent[FEW:], later) == silent[FEW : 2 * FEW], "to ask again does not keep a permit"


def test_tenants_whose_drivers_are_silent_again_and_again_keep_no_permits(permits: ReplacementPermits) -> None:
    """Injected: in four of thirteen namespaces, drivers give heartbeats for a while and then none."""
    hostile = [key for number in range(4) for key in keys(f"hostile-{number}", 1)]
    shop = keys("shop", 1)
    note(permits, [key for number in range(8) for key in keys(f"team-{number}", 1)], is_alive=True)
    epochs, since = dict.fromkeys(hostile, 1), dict.fromkeys(hostile, NOW)
    waited = None
    for second in range(200):
        at = NOW + second
        note(permits, hostile, is_alive=False, now=at)
        note(permits, [key for number in range(8) for key in keys(f"team-{number}", 1)], is_alive=True, now=at)
        for key in hostile:
            if at >= since[key] and permits.take(key, epochs[key], at):
                epochs[key], since[key] = epochs[key] + 1, at + 20
        if second >= 60 and waited is None:
            note(permits, shop, is_alive=False, now=at)
            waited = second - 60 if permits.take(shop[0], 1, at) else None
    assert waited is not None
    assert waited <= PERIOD
