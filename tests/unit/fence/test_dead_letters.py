"""What a letter keeps of a record: everything in it can be stored."""

from __future__ import annotations

from fencepost.fence.letters import letter


def test_an_error_with_half_a_surrogate_pair_can_be_stored() -> None:
    """JSON can hold one, so can what a transform raises, and Cassandra's texts are UTF-8."""
    text = "unknown country: \ud83d"
    made = letter(
        topic="t", partition=0, topic_id="id", offset=7, epoch=1, code="c", reason="TransformFailed", error=text,
        traceback=text, timestamp=None, key=None, value=b"v", headers=(),
    )  # fmt: skip
    assert (made.error, made.traceback) == (r"unknown country: \ud83d", r"unknown country: \ud83d")
