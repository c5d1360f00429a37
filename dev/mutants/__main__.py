"""`python -m mutants`: random mutants of the core against its tests; prints each module's score and survivors."""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from mutants.modules import MODULES, ROOT, Module
from mutants.mutations import Mutation, mutations_of
from mutants.plugin import Mutant, Plugin


def main(words: Sequence[str] | None = None) -> int:
    """Print the mutation score of some modules; 2 when a test fails without a mutant."""
    top = argparse.ArgumentParser(prog="mutants", description="The mutation score of the core.")
    names = [module.name for module in MODULES]
    top.add_argument("names", nargs="*", metavar="MODULE", help=f"{', '.join(names)} (default: each of them)")
    top.add_argument("--count", type=int, default=30, help="mutants of each module (default: %(default)s)")
    top.add_argument("--seed", type=int, default=1, help="the same seed draws the same mutants (default: %(default)s)")
    top.add_argument("--jobs", type=int, default=2, help="mutants side by side (default: %(default)s)")
    arguments = top.parse_args(words)
    if unknown := set(arguments.names) - set(names):
        top.error(f"unknown module {', '.join(sorted(unknown))}: use {', '.join(names)}")
    modules = [module for module in MODULES if not arguments.names or module.name in arguments.names]
    return score(modules, count=arguments.count, seed=arguments.seed, jobs=arguments.jobs)


def score(modules: Sequence[Module], *, count: int, seed: int, jobs: int, root: Path = ROOT) -> int:
    """Draw mutants, run them, and print the score. Raises FileNotFoundError for a module without files."""
    files = {module.name: module.files(root) for module in modules}
    sources = {file: file.read_text(encoding="utf-8") for found in files.values() for file in found}
    mutants = [
        Mutant(module=module.name, file=file, mutation=mutation)
        for module in modules
        for file, mutation in drawn(module.name, {each: sources[each] for each in files[module.name]}, count, seed)
    ]
    verdicts: dict[Mutant, bool] = {}

    def settled(mutant: Mutant, is_killed: bool) -> None:
        verdicts[mutant] = is_killed
        if not is_killed:
            print_survivor(mutant, sources[mutant.file], root)

    tests = {module.name: module.tests for module in modules}
    plugin = Plugin(
        mutants,
        sources,
        allowed=lambda module, test: test.startswith(tests[module]),
        jobs=jobs,
        settled=settled,
    )
    paths = sorted({path for module in modules for path in module.tests})
    with TemporaryDirectory() as folder:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = folder
        options = ["-q", "-s", "-n0", "-p", "no:cacheprovider", f"--rootdir={root}"]
        status = pytest.main([*options, *(str(root / path) for path in paths)], plugins=[plugin])
    if plugin.unsound or status not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        print("These tests fail without a mutant, or cannot be collected:", *plugin.unsound, sep="\n  ")
        return 2
    for module in modules:
        print_score(module.name, [is_killed for mutant, is_killed in verdicts.items() if mutant.module == module.name])
    return 0


def drawn(name: str, sources: Mapping[Path, str], count: int, seed: int) -> list[tuple[Path, Mutation]]:
    """Return some mutations of a module's files: the same for the same seed and the same code."""
    found = [(file, mutation) for file, source in sources.items() for mutation in mutations_of(source)]
    return random.Random(f"{seed} {name}").sample(found, min(count, len(found)))


def print_survivor(mutant: Mutant, source: str, root: Path) -> None:
    """Print as a diff what the tests have not found."""
    before, after = mutant.mutation.lines(source)
    print(f"{mutant.file.relative_to(root)}:{mutant.mutation.line}\n- {before}\n+ {after}", flush=True)


def print_score(name: str, verdicts: Sequence[bool]) -> None:
    """Print how many of a module's mutants were killed."""
    share = f", {sum(verdicts) / len(verdicts):.0%}" if verdicts else ""
    print(f"{name}: {sum(verdicts)} of {len(verdicts)} killed{share}")


if __name__ == "__main__":
    sys.exit(main())
