"""Commands in a node, and a container engine that does not answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo import __main__ as demo
from harness.kubernetes.nodes import NodeError, Nodes
from testbed.environment import NotUpError


@pytest.fixture
def silent(tmp_path: Path) -> Nodes:
    """A container engine that never answers."""
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\nexec sleep 60\n")
    docker.chmod(0o755)
    return Nodes(str(docker))


def test_a_command_without_an_answer_is_an_error_that_names_it(silent: Nodes) -> None:
    with pytest.raises(NodeError, match=r"exec node-1 date: no answer within 0.1 s"):
        silent.run("node-1", "date", seconds=0.1)


@pytest.mark.parametrize("failure", [NodeError("node-1: no answer within 30 s"), NotUpError("run `make up`")])
def test_a_demo_that_fails_before_it_plays_ends_with_one_line(
    failure: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise failure

    monkeypatch.setattr(demo, "load", fail)
    assert demo.main([]) == 1
    assert capsys.readouterr().err == f"demo: {failure}\n"
