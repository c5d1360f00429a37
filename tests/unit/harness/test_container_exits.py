"""What `ctr events` prints, and which ends of containers are read from it."""

from __future__ import annotations

from harness.faults.container_exits import ContainerExits
from harness.kubernetes.nodes import Container

AT = "2026-11-24 22:00:00.123456789 +0000 UTC k8s.io"


def test_the_ends_of_containers_are_kept_and_those_of_their_probes_are_not() -> None:
    found = ContainerExits()
    found.read(
        [
            f'{AT} /tasks/start {{"container_id":"one","pid":7}}\n',
            f'{AT} /tasks/exit {{"container_id":"one","id":"probe","pid":8,"exit_status":1}}\n',
            f'{AT} /tasks/exit {{"container_id":"one","id":"one","pid":7,"exit_status":50}}\n',
            f'{AT} /tasks/exit {{"container_id":"two","id":"two","pid":9}}\n',
        ]
    )
    codes = [found.code(Container(node="node", identity=name)) for name in ("one", "two", "three")]
    assert codes == [50, 0, None]
