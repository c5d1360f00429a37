"""Random histories of a stateful pipeline: offsets, output, state and tables are those of an undisturbed run."""

from __future__ import annotations

from collections import Counter

import pytest

from simulation.hash_seeds import outputs
from simulation.stateful import events, history
from simulation.stateful.__main__ import MODEL
from simulation.stateful.history import History, Setup
from simulation.stateful.playing import play

HISTORIES, SHARES = range(400), 4
met, played = Counter[str](), set[int]()


@pytest.mark.parametrize("share", range(SHARES))
def test_every_history_ends_as_an_undisturbed_run(share: int) -> None:
    reached, failures = MODEL.campaign(HISTORIES[share::SHARES])
    met.update(reached)
    played.add(share)
    for seed, failure in sorted(failures.items())[:1]:
        pytest.fail(MODEL.explained(History.random(seed), failure), pytrace=False)


def test_the_histories_reach_what_the_promises_are_about() -> None:
    """Runs after the histories: its figures are theirs."""
    if len(played) < SHARES:
        pytest.skip("needs all the histories")
    assert met.keys() >= {
        "batch without records",
        "claim after an accepted loss",
        "batch repeated by a successor",
        "driver fenced",
        "driver runs on after a takeover",
        "file collected",
        "file stored for a driver that is gone",
        "record failed",
        "output deleted by a rewind",
        "request refused after the epoch",
        "rewind to the committed offsets",
        "rewind to an older snapshot",
        "rewind to before the first commit",
        "rewind with empty state",
        "snapshot inserted too late",
        "snapshot taken",
        "state read from a snapshot of a store",
    }


def test_an_undisturbed_run_commits_every_record() -> None:
    assert play(History(0, Setup(), ())) is None


def test_a_seed_is_the_same_history_on_each_machine() -> None:
    """Injected: another hash seed, which orders sets of strings differently."""
    code = (
        "from simulation.stateful.history import History; from simulation.stateful.playing import Play, small\n"
        "for seed in range(12):\n"
        "    playing = Play(History.random(seed))\n"
        "    with small(playing.world): playing.run()\n"
        "    print('\\n'.join(playing.world.trace))"
    )
    (trace,) = outputs(code)
    assert "commit " in trace


def test_a_history_prints_as_the_python_that_makes_it() -> None:
    for seed in range(50):
        made = History.random(seed)
        assert eval(str(made), {**vars(events), **vars(history)}) == made  # noqa: S307 - our own text
