"""One call as the gates judged it, within the process that judged it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from signoff.contracts.activity_messages import GateDecision
from signoff.contracts.call import CallCode, CallOutcome, ToolDenied
from signoff.contracts.content import Content, Words
from signoff.contracts.message import CallPart
from signoff.formats.nearest_name import cut_text
from signoff.formats.replace import replace
from signoff.languages.remarks import english
from signoff.policy.compiled_policy import PolicyVerdict
from signoff.registry.tool import Tool

GateName: TypeAlias = Literal[
    "shape", "caps", "resolve", "surface", "tag_policy", "allowlist", "layer", "available", "schema", "permission",
    "capabilities", "usage", "dry_run", "approval",
]  # fmt: skip

_SHOWN_CHARS = 2_000
"""Maximum length of a settled call's message, and of its note: one result holds the decisions of a whole batch."""


class JudgedCall(NamedTuple):
    """The gates' decision on one call, with its evidence. Only the decision is sent.

    While `awaits_permission` or `before_handler` is set, the decision is the safe one: nothing runs.
    """

    decision: GateDecision
    """The decision to send."""
    tool: Tool | None = None
    """The tool. `None` if the actor has none of this name."""
    verdict: PolicyVerdict | None = None
    """The verdict of policy and global rules. `None` if an earlier gate decided."""
    before_handler: PolicyVerdict | None = None
    """The verdict of the rules without the policy's handler, which has not run yet."""
    awaits_permission: bool = False
    """Whether the tool's permission check must run before the call is judged again."""
    objection: str = ""
    """The reason of the permission check for a denial that approvers may override."""
    corrected: Mapping[str, Any] | None = None
    """The replacement arguments, if the tool's own check corrected them."""
    notes: tuple[Words, ...] = ()
    """Notes about a correction, or about an accepted misfit."""
    words: tuple[Words, ...] = ()
    """The text of the call's outcome, if it has one."""
    at: datetime | None = None
    """The instant of the judgement."""

    @property
    def kind(self) -> Literal["run", "ask", "settled"]:
        return self.decision.kind

    @property
    def outcome(self) -> CallOutcome | None:
        return self.decision.outcome

    @property
    def gate(self) -> GateName:
        return "approval" if self.outcome is None else cast("GateName", self.outcome.gate)

    @property
    def code(self) -> CallCode:
        """`ok` if the call has no outcome yet."""
        return "ok" if self.outcome is None else self.outcome.code

    @property
    def explained_kind(self) -> Literal["run", "ask", "settled", "question"]:
        """`question` if the tool's permission check has not run yet."""
        return "question" if self.awaits_permission else self.kind

    @property
    def message(self) -> str:
        if self.outcome is None:
            return ""
        return self.outcome.denied.reason if self.outcome.denied is not None else str(self.outcome.value.inline)

    @property
    def note(self) -> str:
        return " ".join(map(english, self.notes))

    def args(self, proposed: Any) -> Any:
        """Return the arguments to judge, show, bind and run: the proposed ones unless corrected."""
        return proposed if self.corrected is None else dict(self.corrected)

    def decide(self, **changes: object) -> "JudgedCall":
        """Change fields of the decision, and keep the evidence."""
        return self._replace(decision=replace(self.decision, **changes))

    def deny(self, denied: ToolDenied) -> "JudgedCall":
        outcome = CallOutcome(
            call=self.decision.call,
            tool=denied.tool,
            code="denied",
            gate=self.gate,
            value=Content(inline=denied.for_model()),
            denied=denied,
        )
        return self.decide(kind="settled", outcome=outcome)

    def reword(self, words: tuple[Words, ...]) -> "JudgedCall":
        """A denial keeps its own text."""
        if not words or self.outcome is None or self.outcome.denied is not None:
            return self
        return self.decide(outcome=replace(self.outcome, value=Content(inline=english(words))))._replace(words=words)


def settled_decision(
    call: CallPart, gate: GateName, code: CallCode, words: Words | tuple[Words, ...], tool: Tool | None = None
) -> JudgedCall:
    outcome = CallOutcome(call=call.call, tool=call.tool, code=code, gate=gate, value=Content(inline=english(words)))
    return JudgedCall(GateDecision(call=call.call, kind="settled", outcome=outcome), tool, words=_all(words))


def _all(words: Words | tuple[Words, ...]) -> tuple[Words, ...]:
    return words if isinstance(words, tuple) else (words,)


def denied_decision(call: CallPart, gate: GateName, reason: Words | tuple[Words, ...], tool: Tool) -> JudgedCall:
    denied = ToolDenied(source="policy", tool=call.tool, call_id=call.call, reason=english(reason))
    return settled_decision(call, gate, "denied", reason, tool).deny(denied)


def settled_outcome(found: JudgedCall) -> CallOutcome:
    """Return the outcome, as kept in a history, of a call that the gates settled or a dry run stopped."""
    outcome = found.outcome
    if outcome is None:
        raise RuntimeError(f"the gates have not ended the call {found.decision.call}")
    update: dict[str, Any] = {
        "rule": found.verdict.rule if found.verdict else None,
        "note": cut_text(found.note, _SHOWN_CHARS),
    }
    if outcome.denied is None:
        update["value"] = Content(inline=cut_text(found.message, _SHOWN_CHARS))
    return replace(outcome, **update)
