"""An author's function, found by its name `module:function`."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fencepost.contract import Reason
from fencepost.errors import BadSpec

if TYPE_CHECKING:
    from collections.abc import Callable


def load(entrypoint: str, code_dir: Path | None = None, *, field: str = "spec.job.entrypoint") -> Callable[..., Any]:
    """Import and return the function; `code_dir` goes first on the path when it exists. `field` is that of the spec.

    Raises BadSpec saying what is wrong: the name's form, the import (with the author's own traceback line), or the
    attribute.
    """
    remedy = f"Correct {field}, or put the module into the image or the ConfigMap of spec.job.codeFrom."
    name, separator, attribute = entrypoint.partition(":")
    if not separator or not name or not attribute:
        raise BadSpec(
            f"entrypoint {entrypoint!r} is not of the form 'module:function'", reason=Reason.ENTRYPOINT_INVALID
        )
    if code_dir is not None and code_dir.is_dir() and str(code_dir) not in sys.path:
        sys.path.insert(0, str(code_dir))
    try:
        found: Any = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise BadSpec(_missing(entrypoint, name, error), reason=Reason.ENTRYPOINT_NOT_FOUND, remedy=remedy) from error
    except Exception as error:
        raise BadSpec(
            f"importing {name!r} failed: {_innermost(error)}", reason=Reason.ENTRYPOINT_FAILED, remedy=remedy
        ) from error
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise BadSpec(
            f"module {name!r} has no function {attribute!r}", reason=Reason.ENTRYPOINT_NOT_FOUND, remedy=remedy
        )
    loaded: Callable[..., Any] = found
    return loaded


def finish_of(entrypoint: str) -> Callable[..., Any] | None:
    """Return the function `finish` of a loaded entrypoint's module, None without one."""
    found = getattr(sys.modules[entrypoint.partition(":")[0]], "finish", None)
    return found if callable(found) else None


def _missing(entrypoint: str, name: str, error: ModuleNotFoundError) -> str:
    if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
        return f"entrypoint {entrypoint!r}: module {error.name!r} is not on the Python path"
    return f"entrypoint {entrypoint!r}: {name!r} imports {error.name!r}, which is not in the image"


def _innermost(error: Exception) -> str:
    """Return the error with the line of the author's code that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
