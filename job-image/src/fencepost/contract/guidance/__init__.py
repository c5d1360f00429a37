"""What each reason means: the situation, what Fencepost does, and what the user does.

The one source of docs/decisions.md, of the runbooks of reasons, and of the remedies in conditions and Events.  A reason
without an entry here, or one that nothing uses, fails tests/unit/contract/test_guidance.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType
from typing import Final

from fencepost.contract.guidance.corrections import PERSON
from fencepost.contract.guidance.dependencies import DEPENDENCY, RISK
from fencepost.contract.guidance.ends import END
from fencepost.contract.guidance.entry import FIRST, Category, Guidance, Severity, Step
from fencepost.contract.guidance.operations import ACTION, OPERATOR
from fencepost.contract.guidance.paging import PAGE
from fencepost.contract.guidance.pods import POD_STARTS
from fencepost.contract.guidance.states import PROGRESS, STEADY
from fencepost.contract.guidance.verdicts import VERDICT
from fencepost.contract.reasons import Reason

__all__ = ["FIRST", "GUIDANCE", "Category", "Guidance", "Severity", "Step", "guidance_of", "remedy_of"]

PARTS: Final = (STEADY, PROGRESS, PERSON, DEPENDENCY, RISK, POD_STARTS, END, VERDICT, ACTION, PAGE, OPERATOR)

GUIDANCE: Final[Mapping[Reason, Guidance]] = MappingProxyType(dict(chain.from_iterable(part.items() for part in PARTS)))


_BY_NAME: Final[Mapping[str, Guidance]] = {reason.value: guidance for reason, guidance in GUIDANCE.items()}


def guidance_of(reason: str) -> Guidance | None:
    """Return the entry of a reason as a status has it; None for one of another release."""
    return _BY_NAME.get(reason)


def remedy_of(reason: Reason) -> str:
    """Return the remedy of a reason, for messages without a more specific one; '' when nothing needs to be done."""
    return GUIDANCE[reason].remedy
