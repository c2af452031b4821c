"""Holds the gates' decision on one call, in the process that makes it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias, cast

from pydantic import Field, SkipValidation

from signoff.contracts.activity_messages import GateDecision
from signoff.contracts.call import CallCode, CallOutcome, ToolDenied
from signoff.contracts.content import Content, Words
from signoff.contracts.message import CallPart
from signoff.formats.replace import replace
from signoff.languages.remarks import english
from signoff.policy.compiled_policy import PolicyVerdict
from signoff.registry.tool import Tool

GateName: TypeAlias = Literal[
    "shape", "caps", "resolve", "surface", "tag_policy", "allowlist", "layer", "available", "schema", "permission",
    "capabilities", "usage", "dry_run", "approval",
]  # fmt: skip


class LocalGateDecision(GateDecision):
    """Extends a `GateDecision` by what it was made of, which is never sent.

    Until somebody asks for what is still missing (`awaits_permission`, `before_handler`), it is what holds without:
    nothing runs.
    """

    tool: Annotated[Tool | None, SkipValidation] = Field(default=None, exclude=True)
    """The tool; None where the actor has none of this name."""
    verdict: Annotated[PolicyVerdict | None, SkipValidation] = Field(default=None, exclude=True)
    """What policy and global rules say; None where an earlier gate decided."""
    before_handler: Annotated[PolicyVerdict | None, SkipValidation] = Field(default=None, exclude=True)
    """What the rules say without the policy's handler, which has not been asked yet."""
    awaits_permission: bool = Field(default=False, exclude=True)
    """Whether the tool's permission check is to be asked, and the call judged again with its answer."""
    objection: str = Field(default="", exclude=True)
    """Why the permission check would deny what people may now let pass."""
    corrected: Annotated[Mapping[str, Any] | None, SkipValidation] = Field(default=None, exclude=True)
    """The arguments in place of those proposed, where the tool's own check corrected them."""
    notes: tuple[Words, ...] = Field(default=(), exclude=True)
    """What is told of a correction, or of a misfit that is let through."""
    words: tuple[Words, ...] = Field(default=(), exclude=True)
    """The words of the call's outcome, if it has one."""
    at: datetime | None = Field(default=None, exclude=True)
    """The instant at which the call was judged."""

    @property
    def gate(self) -> GateName:
        """The gate that decided."""
        return "approval" if self.outcome is None else cast("GateName", self.outcome.gate)

    @property
    def code(self) -> CallCode:
        """The code of the call's outcome; `ok` where it has none yet."""
        return "ok" if self.outcome is None else self.outcome.code

    @property
    def explained_kind(self) -> Literal["run", "ask", "settled", "question"]:
        """The kind for whoever explains the call; `question` where the tool's permission check is still to be asked."""
        return "question" if self.awaits_permission else self.kind

    @property
    def message(self) -> str:
        """The words of the call's outcome; "" where it has none yet."""
        if self.outcome is None:
            return ""
        return self.outcome.denied.reason if self.outcome.denied is not None else str(self.outcome.value.inline)

    @property
    def note(self) -> str:
        """The notes for the model."""
        return " ".join(map(english, self.notes))

    def args(self, proposed: Any) -> Any:
        """Returns the arguments that are judged, shown, bound and run: those proposed, unless they were corrected."""
        return proposed if self.corrected is None else dict(self.corrected)

    def deny(self, denied: ToolDenied) -> "LocalGateDecision":
        """Returns the decision with the call ended by this denial."""
        outcome = CallOutcome(
            call=self.call,
            tool=denied.tool,
            code="denied",
            gate=self.gate,
            value=Content(inline=denied.for_model()),
            denied=denied,
        )
        return replace(self, kind="settled", outcome=outcome)

    def to_send(self) -> GateDecision:
        """Returns the decision without what stays in this process."""
        return GateDecision(**{name: getattr(self, name) for name in GateDecision.model_fields})

    def reword(self, words: tuple[Words, ...]) -> "LocalGateDecision":
        """Returns the decision with other words in its outcome; a denial keeps its own."""
        if not words or self.outcome is None or self.outcome.denied is not None:
            return self
        return replace(self, outcome=replace(self.outcome, value=Content(inline=english(words))), words=words)


def settled_decision(
    call: CallPart, gate: GateName, code: CallCode, words: Words | tuple[Words, ...], tool: Tool | None = None
) -> LocalGateDecision:
    """Returns the decision that ends a call at `gate` with these words for the model."""
    outcome = CallOutcome(call=call.call, tool=call.tool, code=code, gate=gate, value=Content(inline=english(words)))
    return LocalGateDecision(call=call.call, kind="settled", tool=tool, outcome=outcome, words=_all(words))


def _all(words: Words | tuple[Words, ...]) -> tuple[Words, ...]:
    return words if isinstance(words, tuple) else (words,)


def denied_decision(call: CallPart, gate: GateName, reason: Words | tuple[Words, ...], tool: Tool) -> LocalGateDecision:
    """Returns the decision that denies a call by policy, for this reason."""
    denied = ToolDenied(source="policy", tool=call.tool, call_id=call.call, reason=english(reason))
    return settled_decision(call, gate, "denied", reason, tool).deny(denied)
