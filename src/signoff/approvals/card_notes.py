"""Builds a card's remarks on why approval is needed, only from the store and the catalog."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from signoff.approvals.earlier_questions import is_asked_still
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.content import Remark, Words
from signoff.formats.visible_text import ELLIPSIS, cut_visible, one_line
from signoff.languages.remarks import change_texts, english

TOOL_CHANGED = Remark.of("tool_changed")
POLICY_CHANGED = Remark.of("policy_changed")
UNDECLARED_TOOL = Remark.of("undeclared")
LOOKALIKES = Remark.of("lookalikes")
INVISIBLE = Remark.of("invisible")
NOT_RUN = Remark.of("not_run")
OFFLINE_MODEL = Remark.of("offline_model")


def repeat_note(
    requests: Iterable[ApprovalRequest],
    call: str,
    definition: str,
    policy_hash: str,
    since: datetime | None = None,
    spent: int = 0,
) -> Remark | None:
    """`definition` and `policy_hash` are the present ones.

    `requests` contains all revisions of the turn's requests, oldest first. `since` and `spent` are as in
    `is_new_to_turn`.
    """
    asked = [each for each in requests if each.call == call and each.kind == "approval"]
    if asked and is_asked_still(asked[-1], since, spent) and _under(asked[-1], definition, policy_hash):
        # This is the question itself. A retried activity must find it again unchanged.
        asked.pop()
    if not asked:
        return None
    before = asked[-1]
    if before.definition != definition:
        return TOOL_CHANGED
    if before.policy_hash != policy_hash:
        return POLICY_CHANGED
    return NOT_RUN if before.state in ("approved", "lapsed") else None


def editor_note(name: str) -> Remark:
    return Remark.of("edited", who=name)


def fallback_note(tools: Sequence[str]) -> Remark | None:
    return Remark.of("fallback", tools=", ".join(f"`{each}`" for each in tools)) if tools else None


def runner_note(actor: str) -> Remark:
    """The agent runs the call: running it as shown is the agent's promise."""
    return Remark.of("runner", actor=f"`{actor}`")


def visible_note(note: Words, limit: int) -> Words:
    """Each visible value fits one line of at most `limit` characters."""
    return change_texts(note, lambda each: one_line(each, limit).text)


def cut_notes(notes: Sequence[Words], limit: int) -> tuple[Words, ...]:
    """Truncates to about `limit` characters of English. Shortens only values, marked by `…`."""
    kept: list[Words] = []
    for at, note in enumerate(notes, 1):
        chars = len(english(note))
        if chars > limit:
            return (*kept, _cut_note(note, limit), *([ELLIPSIS] if at < len(notes) else ()))
        kept.append(note)
        limit -= chars
    return tuple(kept)


def _cut_note(note: Words, limit: int) -> Words:
    if isinstance(note, str):
        return cut_visible(note, limit)
    return Remark(code=note.code, values={name: _cut_value(each, limit) for name, each in note.values.items()})


def _cut_value(value: Words | tuple[Words, ...], limit: int) -> Words | tuple[Words, ...]:
    if isinstance(value, tuple):
        return cut_notes(value, limit)
    return value if len(english(value)) <= limit else _cut_note(value, limit)


def _under(request: ApprovalRequest, definition: str, policy_hash: str) -> bool:
    return (request.definition, request.policy_hash) == (definition, policy_hash)
