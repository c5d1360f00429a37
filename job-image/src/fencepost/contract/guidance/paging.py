"""Reasons that are about pages: why a page is sent, and why one cannot be."""

from __future__ import annotations

from typing import Final

from fencepost.contract.guidance.entry import FAILURE, LOG, OPERATOR_LOG, PODS, Category, Guidance, Severity, Step
from fencepost.contract.reasons import Reason

RECEIVERS: Final = "../pages.md#receivers"
PAGES: Final = Step("What was sent to whom", "kubectl get spl -n NAMESPACE NAME -o jsonpath='{.status.pages}'")

PAGE: Final = {
    Reason.NOT_READY: Guidance(
        category=Category.PAGE,
        severity=Severity.CRITICAL,
        situation="For `pages.notReadyFor`, ten minutes by default, the pipeline has not done what its spec asks for",
        does="pages once, and says that it is over when the pipeline has been ready for `pages.resolveAfter`",
        remedy="correct what the condition Ready names",
        steps=(FAILURE, PODS, LOG),
        more="FencepostPipelineNotReady.md",
    ),
    Reason.RECEIVER_INVALID: Guidance(
        category=Category.PAGE,
        severity=Severity.NONE,
        situation="A line of a Secret with receivers cannot be used; the message names Secret, key and line",
        does="sends pages to the other receivers",
        remedy="correct the line of the Secret that the message names",
        steps=(
            Step("The keys of the namespace's Secret", "kubectl describe secret -n NAMESPACE fencepost-pages"),
            OPERATOR_LOG,
        ),
        more=RECEIVERS,
    ),
    Reason.PAGE_FAILED: Guidance(
        category=Category.PAGE,
        severity=Severity.NONE,
        situation="A receiver refuses pages or does not answer, or did not get the resolution of an incident of a "
        "deleted pipeline",
        does="tries a refused page again every ten minutes, and one without an answer within two",
        remedy="correct the key or the address in the Secret that the message names",
        steps=(PAGES, OPERATOR_LOG),
        more=RECEIVERS,
    ),
    Reason.SILENCE_INVALID: Guidance(
        category=Category.PAGE,
        severity=Severity.NONE,
        situation="The annotation `streaming.fencepost.dev/silence-until` is not a valid time, or is more than 30 days "
        "ahead",
        does="pages as if it were not there",
        remedy="set the annotation streaming.fencepost.dev/silence-until to a time such as 2030-01-31T18:00:00Z, at "
        "most 30 days ahead",
        steps=(
            Step(
                "Silence for two hours",
                "kubectl annotate spl -n NAMESPACE NAME --overwrite "
                "streaming.fencepost.dev/silence-until=\"$(date -u -d '+2 hours' +%Y-%m-%dT%H:%M:%SZ)\"",
            ),
        ),
        more="../pages.md#silence",
    ),
}
