"""Runs inside an image, on its standard library alone: prints what is installed there, as JSON.

usage: inspection.py ROOT

ROOT is '/', or a folder with the files of an image. What is wrong with it is decided elsewhere.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HOME = Path("opt/fencepost")
CODE = HOME / "code"
SEARCHED = ("opt", "usr/local", "home", "srv", "app", "tmp")
"""Where an author may put jars."""


def main(root: Path) -> None:
    """Print the report."""
    json.dump(report(root), sys.stdout)


def report(root: Path) -> dict[str, Any]:
    """Return versions of the base, Python packages by folder, jars, and the files of the author's code."""
    libraries = sorted((root / HOME).glob("venv/lib/python3*/site-packages"))
    folders = [*libraries, root / CODE]
    return {
        "versions": _versions(root / HOME / "versions.json"),
        "pythons": [folder.parent.name.removeprefix("python") for folder in libraries],
        "packages": [found for folder in folders for found in _packages(folder, root)],
        "modules": {_shown(folder, root): sorted(_modules(folder)) for folder in folders},
        "native": [_shown(path, root) for path in sorted((root / CODE).rglob("*.so"))],
        "unreadable": [_shown(path, root) for path in _files(root / CODE) if not path.stat().st_mode & 0o004],
        "broken": list(_broken(root)),
        "functions": {_module(path, root): sorted(_functions(path)) for path in (root / CODE).rglob("*.py")},
        "jars": sorted(
            _shown(path, root) for place in SEARCHED for path in _files(root / place) if path.suffix == ".jar"
        ),
    }


def _versions(path: Path) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def _packages(folder: Path, root: Path) -> Iterator[dict[str, str]]:
    for path in sorted(folder.glob("*.dist-info/METADATA")):
        found = dict(re.findall(r"^(Name|Version): (.+)$", path.read_text(errors="replace"), re.MULTILINE))
        name = re.sub(r"[-_.]+", "-", found.get("Name", "")).lower()
        yield {"name": name, "version": found.get("Version", ""), "folder": _shown(folder, root)}


def _modules(folder: Path) -> Iterator[str]:
    """Yield the names that an import finds in a folder."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.suffix == ".py" or (path.is_dir() and path.suffix == "" and path.name != "__pycache__"):
            yield path.stem


def _files(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in names if not Path(place, name).is_symlink())


def _broken(root: Path) -> Iterator[dict[str, str]]:
    for path in sorted((root / CODE).rglob("*.py")):
        try:
            ast.parse(path.read_bytes())
        except (SyntaxError, ValueError) as error:
            yield {"path": _shown(path, root), "error": f"{type(error).__name__}: {error}"}


def _functions(path: Path) -> Iterator[str]:
    """Yield the names that a module defines at its top level."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError):
        return
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name for alias in names)
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case _:
                continue


def _module(path: Path, root: Path) -> str:
    parts = path.relative_to(root / CODE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _shown(path: Path, root: Path) -> str:
    return f"/{path.relative_to(root)}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
