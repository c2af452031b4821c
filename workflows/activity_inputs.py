"""Builds the inputs of activities from a turn's state."""

from typing import Any

from signoff.contracts.activity_messages import Authority
from signoff.contracts.decision import Decision
from signoff.formats.replace import replace


def edit(decision: Decision, editor: Authority) -> dict[str, Any]:
    named = decision if decision.signature else replace(decision, subject=editor.subject)
    # The edit's own delivery identifies its revision, so the time of the question does not matter.
    return {"edit": named, "asked_since": None}
