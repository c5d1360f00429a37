"""Where a file of the repository is in the site, and the pages for sources that the documentation links to."""

from __future__ import annotations

import ast
import os
import posixpath
import subprocess
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = "docs"
HOME: Final = "README.md"
"""The site's first page."""
SHOWN: Final = 60_000
"""Bytes of a folder's files that its page shows; of a larger one it lists them."""
_LANGUAGES: Final = {".py": "python", ".yaml": "yaml", ".cql": "sql", ".lua": "lua", ".sql": "sql"}


def site_path(repository_path: str) -> str:
    """Return the page or file of the site for a file or folder of the repository.

    'docs/sinks.md' is 'sinks.md', 'SECURITY.md' is itself, and a source or a folder has a page that shows it.
    """
    if repository_path == HOME:
        return "index.md"
    if repository_path == DOCS:
        return "index.md"
    within = repository_path.removeprefix(f"{DOCS}/")
    if (ROOT / repository_path).is_dir():
        has_readme = (ROOT / repository_path / "README.md").is_file()
        return f"{within}/README.md" if has_readme else f"{within}/index.md"
    if within != repository_path:
        return within
    return repository_path if repository_path.endswith(".md") else f"{repository_path}.md"


def moved(target: str, *, page: str) -> str:
    """Return a link's target as the site has it; `page` is the repository's path of the page with the link."""
    path, mark, anchor = target.partition("#")
    if not path or ":" in path or path.startswith("/"):
        return target
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    if wanted.startswith("../") or not (ROOT / wanted).exists():
        return target  # MkDocs reports it
    return os.path.relpath(site_path(wanted), posixpath.dirname(site_path(page)) or ".") + mark + anchor


def outside(target: str, *, page: str) -> str | None:
    """Return the repository's path of a target outside of docs/ that exists, else None."""
    path = target.partition("#")[0]
    if not path or ":" in path or path.startswith("/"):
        return None
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    is_inside = wanted == DOCS or wanted.startswith(f"{DOCS}/")
    return None if is_inside or wanted.startswith("../") or not (ROOT / wanted).exists() else wanted


def content(repository_path: str) -> str:
    """Return the Markdown of the page of a file or folder outside of docs/."""
    place = ROOT / repository_path
    if place.is_dir():
        return _folder(repository_path)
    if place.suffix == ".md":
        return place.read_text()
    return f"# {repository_path}\n\n{_block(place)}"


def _folder(path: str) -> str:
    files = [ROOT / line for line in _tracked(path)]
    texts = [file for file in files if file.suffix not in {".png", ".jar", ".parquet"}]
    if sum(file.stat().st_size for file in texts) > SHOWN:
        lines = [f"- `{file.relative_to(ROOT)}`{_sentence(file)}" for file in texts]
        return f"# {path}\n\n" + "\n".join(lines) + "\n"
    return f"# {path}\n\n" + "\n".join(f"## {file.relative_to(ROOT / path)}\n\n{_block(file)}" for file in texts)


def _tracked(path: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", path],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return sorted(listed.stdout.splitlines())


def _sentence(file: Path) -> str:
    """Return the first line of a module's docstring, after a colon."""
    if file.suffix != ".py":
        return ""
    docstring = ast.get_docstring(ast.parse(file.read_text()))
    return f": {docstring.splitlines()[0]}" if docstring else ""


def _block(file: Path) -> str:
    fence = "`````"
    return f"{fence}{_LANGUAGES.get(PurePosixPath(file).suffix, 'text')}\n{file.read_text().rstrip()}\n{fence}\n"
