"""What is mutated, and which tests may kill it: the paths of both, in this place only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
# Not those of tests/crash: they cover the rules and the rewind too, but a survivor would take minutes of them.
LOOP_TESTS: Final = tuple(
    f"tests/unit/driver/test_{name}.py"
    for name in (
        "back_pressure", "leader_epochs", "loop", "loop_elections", "loop_faults", "loop_losses", "loop_partitions",
        "plan", "poison", "topic_ids",
    )
)  # fmt: skip
DECISION: Final = "tests/unit/operator/decision"
RULE_TESTS: Final = tuple(
    f"{DECISION}/{name}"
    for name in (
        "cluster/test_deaf_master.py", "cluster/test_drained_master.py", "cluster/test_readiness.py",
        "cluster/test_shared_cluster.py", "cluster/test_silent_nodes.py", "kafka/test_acceptance.py",
        "kafka/test_throughput.py", "rules/", "run/test_gone_batches.py", "run/test_liveness.py",
        "run/test_progress.py", "test_pausing.py",
    )
)  # fmt: skip
REWIND_TESTS: Final = (
    f"{DECISION}/rewind/", f"{DECISION}/test_stateful.py", "tests/unit/operator/desired/test_purge_job.py",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """Files and folders, from the checkout's root; a folder of tests ends in a slash."""

    name: str
    sources: tuple[str, ...]
    tests: tuple[str, ...]

    def files(self, root: Path) -> list[Path]:
        """Return the files to mutate, in an order that is the same each time. Raises FileNotFoundError without one."""
        found = [file for each in self.sources for file in sorted(root.glob(each))]
        if not found:
            raise FileNotFoundError(
                f"{self.name}: no file matches {', '.join(self.sources)}: correct mutants/modules.py"
            )
        return found


MODULES: Final = (
    Module(
        name="fence/protocol",
        sources=("job-image/src/fencepost/fence/protocol.py",),
        tests=("tests/unit/fence/test_fence.py", "tests/unit/fence/test_rewind.py", *LOOP_TESTS),
    ),
    Module(name="driver/plan", sources=("job-image/src/fencepost/driver/planning/plan.py",), tests=LOOP_TESTS),
    Module(name="driver/planner", sources=("job-image/src/fencepost/driver/planning/planner.py",), tests=LOOP_TESTS),
    Module(
        name="driver/pacing",
        sources=("job-image/src/fencepost/driver/planning/pacing.py",),
        tests=("tests/unit/driver/test_pacing.py",),
    ),
    Module(
        name="driver/stateful/plan",
        sources=("job-image/src/fencepost/driver/stateful/plan.py",),
        tests=("tests/unit/driver/test_stateful_plan.py", "tests/unit/driver/test_stateful_run.py"),
    ),
    Module(name="driver/loop", sources=("job-image/src/fencepost/driver/loop.py",), tests=LOOP_TESTS),
    Module(
        name="decision/rules",
        sources=("operator/src/fencepost_operator/decision/rules/*.py",),
        tests=RULE_TESTS,
    ),
    Module(
        name="decision/rewind",
        sources=("operator/src/fencepost_operator/decision/rewind/*.py",),
        tests=REWIND_TESTS,
    ),
)
