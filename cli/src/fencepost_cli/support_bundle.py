"""What a support archive holds, without secrets.

No Secret is in it.  Values of environment variables are covered, and so is what looks like a password, a token or a
key, and each value of a Secret of the pipeline, wherever it is quoted: in fields, in messages, in logs.
"""

from __future__ import annotations

import base64
import io
import re
import tarfile
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from fencepost_operator.masking import MASK, masked

SHORTEST: Final = 4
"""Characters of a value of a Secret that is covered: shorter ones are in any text."""
_DROPPED: Final = frozenset({"managedFields"})
_COPIES: Final = "last-applied-configuration"
"""In the name of the annotation in which kubectl keeps the whole object."""
_NAMES: Final = frozenset({"secretName", "secretRef"})
"""Fields that look secret by their names, and hold the name of a Secret."""
_VARIABLES: Final = frozenset({"env"})


@dataclass(frozen=True, slots=True)
class Covers:
    """Covers what must not leave the cluster; `values` are those of the pipeline's Secrets."""

    values: Collection[str] = field(repr=False, default=())

    def text(self, text: str) -> str:
        """Return a text with all of it covered."""
        for value in self._known():
            text = text.replace(value, MASK)
        return masked(text)

    def fields(self, value: Any, name: str = "") -> Any:  # noqa: ANN401 - JSON
        """Return a JSON value, the field of this name, with all of it covered."""
        if isinstance(value, Mapping):
            kept = {key: one for key, one in value.items() if key not in _DROPPED and _COPIES not in key}
            return {key: self.fields(one, key) for key, one in kept.items()}
        if isinstance(value, list | tuple):
            if name in _VARIABLES:
                return [_without_value(self.fields(one)) for one in value]
            return [self.fields(one, name) for one in value]
        if not isinstance(value, str):
            return value
        return MASK if name not in _NAMES and _looks_secret(name) else self.text(value)

    def _known(self) -> list[str]:
        plain = [value for value in self.values if len(value) >= SHORTEST]
        lines = [line for value in plain for line in value.splitlines() if len(line) >= SHORTEST]
        coded = [base64.b64encode(value.encode()).decode() for value in plain]
        return sorted({*plain, *lines, *coded}, key=len, reverse=True)


def yaml_of(value: Any) -> str:  # noqa: ANN401 - JSON
    """Return a JSON value as YAML."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)


def archive_of(files: Mapping[str, str], folder: str) -> bytes:
    """Return a .tar.gz of texts by their paths, which may hold names of the cluster, in a folder of its own."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path, text in files.items():
            content = text.encode(errors="replace")
            entry = tarfile.TarInfo(f"{file_name(folder)}/{'/'.join(map(file_name, path.split('/')))}")
            entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def file_name(text: str) -> str:
    """Return a text as the name of a file in the archive's folder."""
    found = re.sub(r"[^A-Za-z0-9._-]", "_", text).lstrip(".")[:200]
    return found or "_"


def _looks_secret(name: str) -> bool:
    return bool(name) and masked(f"{name}=x") != f"{name}=x"


def _without_value(variable: Any) -> Any:  # noqa: ANN401 - JSON
    return {**variable, "value": MASK} if isinstance(variable, dict) and "value" in variable else variable
