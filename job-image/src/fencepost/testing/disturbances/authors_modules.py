"""An author's modules with another clock and another `hash`, while a test lasts."""

from __future__ import annotations

import datetime as dt
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

SHIFT: Final = dt.timedelta(days=400, hours=5, minutes=7)
"""How far the other clock is ahead: another year, month, day, hour and minute."""
_MASK: Final = 0x5F5E


@contextmanager
def disturbed(function: object, *, by_value: bool = True) -> Iterator[None]:
    """Shift the clock of the modules of an author's function, and change their `hash`.

    The modules are the one that defines the function and those beside it. What they have as global names is replaced:
    datetime, date, time, and the modules of these. `by_value` sends the modules so to Spark's Python workers.
    """
    with sent_by_value(modules_of(function) if by_value else ()):
        before = [(module, dict(vars(module))) for module in modules_of(function)]
        replaced = _replaced()
        try:
            for module, names in before:
                vars(module).update(
                    {name: replaced[id(value)] for name, value in names.items() if id(value) in replaced}
                )
                vars(module).setdefault("hash", _other_hash)
            forget_functions(function)
            yield
        finally:
            for module, names in before:
                for name, value in names.items():
                    if id(value) in replaced:
                        setattr(module, name, value)
                if "hash" not in names:
                    del vars(module)["hash"]
            forget_functions(function)


def modules_of(function: object) -> Sequence[ModuleType]:
    """Return the module of a function, and the loaded ones of its folder; none of an installed package."""
    own = sys.modules.get(getattr(function, "__module__", None) or "")
    if own is None:
        return ()
    folder = _folder(own)
    beside = [found for found in list(sys.modules.values()) if found is not own and _folder(found) == folder]
    return (own, *(beside if folder is not None and "site-packages" not in folder.parts else ()))


def _folder(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).parent if isinstance(file, str) else None


def forget_functions(function: object) -> None:
    """Let Spark pickle the functions of an author's modules for Python workers again: it keeps those that were used."""
    for value in (value for module in modules_of(function) for value in vars(module).values()):
        for cell in getattr(value, "__closure__", None) or ():
            if hasattr(cell.cell_contents, "_judf_placeholder"):
                cell.cell_contents._judf_placeholder = None  # noqa: SLF001 - PySpark offers no other way


@contextmanager
def sent_by_value(modules: Sequence[ModuleType]) -> Iterator[None]:
    """Let another Python process get these modules with the functions that use them, rather than import them."""
    from pyspark import cloudpickle  # noqa: PLC0415 - Spark's imports take a second

    known = cloudpickle.list_registry_pickle_by_value()  # type: ignore[no-untyped-call]
    added = [module for module in modules if module.__name__ not in known and module.__name__ in sys.modules]
    for module in added:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _other_hash(value: object) -> int:
    return hash(value) ^ _MASK


def _replaced() -> Mapping[int, object]:
    """Return what takes the place of each object that knows the time, by the object's id."""
    moment, day = _shifted_datetime(SHIFT), _shifted_date(SHIFT)
    now, now_ns = _shifted_time(SHIFT)
    return {
        id(dt.datetime): moment,
        id(dt.date): day,
        id(time.time): now,
        id(time.time_ns): now_ns,
        id(dt): _copy(dt, datetime=moment, date=day),
        id(time): _copy(time, time=now, time_ns=now_ns),
    }


def _copy(module: ModuleType, **replaced: object) -> ModuleType:
    copy = ModuleType(f"shifted_{module.__name__}")
    vars(copy).update({name: value for name, value in vars(module).items() if not name.startswith("__")} | replaced)
    return copy


def _shifted_time(shift: dt.timedelta) -> tuple[Any, Any]:
    def now() -> float:
        return time.time() + shift.total_seconds()

    def now_ns() -> int:
        return time.time_ns() + int(shift.total_seconds()) * 10**9

    return now, now_ns


def _shifted_datetime(shift: dt.timedelta) -> type:
    class Kind(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, dt.datetime)

    class Shifted(dt.datetime, metaclass=Kind):
        """Makes plain datetimes, and only answers what time it is."""

        def __new__(cls, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - as datetime's
            return dt.datetime(*args, **named)  # noqa: DTZ001 - as datetime's

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:  # noqa: ANN401 - a plain datetime
            return dt.datetime.now(tz) + shift

        @classmethod
        def utcnow(cls) -> Any:  # noqa: ANN401 - a plain datetime
            return dt.datetime.now(dt.UTC).replace(tzinfo=None) + shift

        @classmethod
        def today(cls) -> Any:  # noqa: ANN401 - a plain datetime
            return dt.datetime.now() + shift  # noqa: DTZ005 - as datetime's

    return Shifted


def _shifted_date(shift: dt.timedelta) -> type:
    class Kind(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, dt.date)

    class Shifted(dt.date, metaclass=Kind):
        """Makes plain dates, and only answers which day it is."""

        def __new__(cls, *args: Any) -> Any:  # noqa: ANN401 - as date's
            return dt.date(*args)

        @classmethod
        def today(cls) -> Any:  # noqa: ANN401 - a plain date
            return dt.date.today() + shift  # noqa: DTZ011 - as date's

    return Shifted
