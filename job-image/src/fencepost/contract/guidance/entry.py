"""What is said about one reason, and the commands that several of them share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Category(StrEnum):
    """The sections of docs/decisions.md, in their order; the value is the heading."""

    STEADY = "Steady states"
    PROGRESS = "On the way"
    PERSON = "A user must correct it"
    DEPENDENCY = "A dependency does not answer, or refuses"
    RISK = "Risks while records flow"
    POD = "Pods that do not start"
    END = "How a run ended: status.failure.reason"
    VERDICT = "What the driver says: at the start of status.failure.message"
    ACTION = "Actions of the operator that fail"
    PAGE = "Pages"
    OPERATOR = "The operator itself: in its log"


class Severity(StrEnum):
    """How urgent a page is: CRITICAL pages at any hour, WARNING can wait for working hours, NONE sends no page."""

    CRITICAL = "critical"
    WARNING = "warning"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a runbook: what it does or shows, and the command for it.

    In a command NAMESPACE, NAME, EPOCH, POD, NODE and other words in capitals stand for what the reader puts there.
    """

    text: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Guidance:
    """What a reason means, for the table of decisions, its runbook, and the messages that carry it.

    `situation` and `does` (what Fencepost does) are clauses without a full stop at their end. `remedy` is what the
    user does, in the imperative and with a small letter, as `with_remedy` takes it; '' where there is nothing to do.
    `first` is the step with which the runbook begins, None for that of its category. `more` is a link of docs/runbooks
    to a page that says more: 'page.md#section'.
    """

    category: Category
    severity: Severity
    situation: str
    does: str
    remedy: str = ""
    first: Step | None = None
    steps: tuple[Step, ...] = ()
    more: str = ""


DESCRIBE: Final = Step("What the conditions and Events say", "kubectl describe spl -n NAMESPACE NAME")
DESCRIBE_TRIAL: Final = Step(
    "What the conditions and Events of the trial say", "kubectl describe tr -n NAMESPACE TRIAL"
)
FAILURE: Final = Step(
    "How the newest run failed, with the last lines of its log",
    "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.status.failure}'",
)
LOG: Final = Step("The driver's log", "kubectl logs -n NAMESPACE job/NAME-run-EPOCH --tail 50")
PODS: Final = Step(
    "The pods of the pipeline", "kubectl get pods -n NAMESPACE -l streaming.fencepost.dev/pipeline=NAME -o wide"
)
POD: Final = Step("Why a pod does not start", "kubectl describe pod -n NAMESPACE POD")
NODES: Final = Step("Which nodes are ready, and what they are short of", "kubectl describe nodes")
RETRY: Final = Step(
    "Try again without a change of the spec",
    'kubectl annotate spl -n NAMESPACE NAME streaming.fencepost.dev/retry="$(date +%s)" --overwrite',
)
SUSPEND: Final = Step(
    "Stop the pipeline while you look",
    'kubectl patch spl -n NAMESPACE NAME --type merge -p \'{"spec":{"suspend":true}}\'',
)
OPERATOR_LOG: Final = Step("The operator's log", "kubectl logs -n fencepost-system deploy/fencepost --since 10m")
OFFSETS: Final = Step(
    "Save the offsets that the operator has seen",
    "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.status.committed.offsets}'",
)
STORED_STATE: Final = Step(
    "How large the state is", "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.status.storedState}'"
)
AUTOSCALE: Final = Step(
    "How many workers there are to be, and why", "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.status.autoscale}'"
)
STATE_FIELDS: Final = Step("The spec of the state", "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.spec.state}'")
HISTORY: Final = Step("What was committed, and by which run", "fencepost fence history NAMESPACE/NAME --limit 20")

FIRST: Final[dict[Category, Step]] = {
    Category.STEADY: DESCRIBE,
    Category.PROGRESS: DESCRIBE,
    Category.PERSON: DESCRIBE,
    Category.DEPENDENCY: DESCRIBE,
    Category.RISK: DESCRIBE,
    Category.POD: DESCRIBE,
    Category.END: FAILURE,
    Category.VERDICT: FAILURE,
    Category.ACTION: DESCRIBE,
    Category.PAGE: DESCRIBE,
    Category.OPERATOR: OPERATOR_LOG,
}
"""The step with which the runbooks of a category begin."""
