"""Makes an evaluation case of a finished turn, with its secrets hidden."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from signoff.approvals.redaction import HIDDEN, hide, redact_arguments, redact_value, secret_values
from signoff.contracts.activity_messages import GateDecision
from signoff.contracts.call import CallOutcome
from signoff.contracts.errors import Refused
from signoff.contracts.ids import TurnKey
from signoff.contracts.message import CallPart, Message, ResultPart, words_of
from signoff.contracts.turn import TurnInput
from signoff.evaluation.case_file import (
    Asker,
    EvaluationCase,
    RecordedCall,
    RecordedCompletion,
    RecordedDecision,
    RecordedMessage,
    RecordedResult,
    RecordedTurn,
)
from signoff.evaluation.turn_history import HistoryStep, TurnHistory
from signoff.formats.replace import replace
from signoff.registry.catalog import Catalog

_NAME_CHARS: Final = 80
_REMEMBERED: Final = "remembered"
_ENDINGS: Final[Mapping[str, Literal["denied", "timed_out", "cancelled"]]] = {
    "human": "denied",
    "repeat": "denied",
    "timeout": "timed_out",
    "cancelled": "cancelled",
}


def case_from_history(
    history: TurnHistory, catalog: Catalog, specialists: Mapping[str, str] | None = None
) -> EvaluationCase:
    """Hide the arguments that `catalog` marks secret.

    `specialists` maps specialists' calls to their results in the audit log: a worker's statement takes precedence over
    the turn's. Raises `Refused` for a turn without anything to replay.
    """
    if history.result is None or not history.steps:
        raise Refused("the turn has not ended, or was never answered by its model: there is nothing to play again")
    return _Recorder(history, catalog, dict(specialists or {})).record()


class _Recorder:
    def __init__(self, history: TurnHistory, catalog: Catalog, specialists: dict[str, str]) -> None:
        self._history = history
        self._catalog = catalog
        self._specialists = specialists
        last = history.steps[-1]
        conversation = (*last.task.messages, last.reply.message)
        self._secrets = frozenset(
            value
            for message in conversation
            for part in message.parts
            if isinstance(part, CallPart)
            for tool in catalog.tools_named(part.tool)
            for value in secret_values(part.args.inline, tool.masked_arguments)
        )
        # Only this turn's messages: calls of earlier turns in the session have the same ids.
        own = conversation[len(history.turn.messages) :]
        self._results = {part.call: part for message in own for part in message.parts if isinstance(part, ResultPart)}
        result = history.result
        self._outcomes = {} if result is None else {outcome.call: outcome for outcome in result.calls}
        self._ending = "" if result is None else result.state
        self._answer = "" if result is None else result.text

    def record(self) -> EvaluationCase:
        turn, first = self._history.turn, self._history.steps[0]
        return EvaluationCase(
            name=self._quiet(_name(turn)),
            recorded=RecordedTurn(
                turn=TurnKey(turn.tenant_id, turn.session_id, turn.turn_id).workflow_id,
                catalog=first.reply.catalog,
                instructions=first.reply.instructions,
            ),
            prompt_hash_mismatch="warn",
            forbid=["new", "missing", "changed", "verdict", "terms", "ending"],
            actor=turn.actor,
            tenant=turn.tenant_id,
            channel=turn.channel,
            route=turn.route,
            step=first.ctx.step,
            transient=list(turn.transient),
            dry_run=turn.dry_run,
            user=Asker(
                user=turn.principal.user,
                name=turn.principal.name,
                tier=turn.principal.tier,
                roles=list(turn.principal.roles),
                locale=turn.principal.locale,
            ),
            context=self._quiet(dict(first.task.ctx.extra)),
            messages=self._messages(turn.messages),
            completions=list(self._completions()),
            ending=self._ending,
            answer=self._quiet(self._answer),
        )

    def _completions(self) -> Iterable[RecordedCompletion]:
        before = self._history.steps[0].ctx
        for step in self._history.steps:
            ctx = step.ctx
            yield RecordedCompletion(
                at=step.at.isoformat(),
                text=self._quiet(words_of(step.reply.message)),
                calls=list(self._calls(step)),
                withheld=list(step.reply.withheld),
                context=None if ctx.extra == before.extra else self._quiet(dict(ctx.extra)),
                step=None if ctx.step == before.step else ctx.step,
            )
            before = ctx

    def _calls(self, step: HistoryStep) -> Iterable[RecordedCall]:
        reply = step.reply
        if reply.answer is not None or reply.respond_error:
            # The gates do not judge calls that accompany an answer.
            return
        decisions = {} if reply.gates is None else {each.call: each for each in reply.gates.gate_decisions}
        for part in reply.calls:
            yield self._call(part, decisions.get(part.call), self._outcomes.get(part.call))

    def _call(self, part: CallPart, gate_decision: GateDecision | None, outcome: CallOutcome | None) -> RecordedCall:
        settled = outcome if gate_decision is None or gate_decision.outcome is None else gate_decision.outcome
        verdict = _verdict(gate_decision, settled)
        rules = [each.rule for each in (gate_decision, outcome) if each is not None and each.rule is not None]
        question = None if gate_decision is None else gate_decision.question
        return RecordedCall(
            call=part.call,
            tool=part.tool,
            args=self._arguments(part),
            malformed=part.malformed,
            surplus=part.surplus,
            verdict=verdict,
            gate="" if settled is None or verdict in ("run", "ask") else settled.gate,
            rule=rules[0] if rules else None,
            terms=None if question is None else question.alone(),
            decision=None if verdict != "ask" else self._decision(gate_decision, outcome),
            result=self._result(part.call, outcome),
        )

    def _decision(self, gate_decision: GateDecision | None, outcome: CallOutcome | None) -> RecordedDecision | None:
        if gate_decision is not None and gate_decision.grant:
            return RecordedDecision(verdict="approved", by="", reason=_REMEMBERED)
        if outcome is None or outcome.code == "skipped":
            return None
        denied = outcome.denied
        if outcome.code == "answered":
            return RecordedDecision(verdict="answered", by=outcome.decided_by, reason="")
        if denied is None or denied.source not in _ENDINGS:
            return RecordedDecision(verdict="approved", by=outcome.decided_by, reason="")
        return RecordedDecision(
            verdict=_ENDINGS[denied.source], by=denied.decided_by, reason=self._quiet(denied.reason)
        )

    def _result(self, call: str, outcome: CallOutcome | None) -> RecordedResult | None:
        part = self._results.get(call)
        if part is not None:
            code, value, note = part.code, part.value.inline, part.note
        elif outcome is not None:
            code, value, note = outcome.code, outcome.value.inline, outcome.note
        else:
            return None
        return RecordedResult(code=code, value=self._quiet(self._specialists.get(call, value)), note=self._quiet(note))

    def _messages(self, messages: Iterable[Message]) -> list[RecordedMessage]:
        found: list[RecordedMessage] = []
        for message in messages:
            if message.role == "tool":
                results = {part.call: part for part in message.parts if isinstance(part, ResultPart)}
                found[-1:] = [_add_results(each, results, self._quiet) for each in found[-1:]]
                continue
            parts = [part for part in message.parts if isinstance(part, CallPart)]
            calls = [RecordedCall(call=part.call, tool=part.tool, args=self._arguments(part)) for part in parts]
            found.append(RecordedMessage(role=message.role, text=self._quiet(words_of(message)), calls=calls))
        return found

    def _arguments(self, part: CallPart) -> dict[str, Any]:
        """Hide secret arguments, and remove secrets of other calls from their texts."""
        names = {name for tool in self._catalog.tools_named(part.tool) for name in tool.masked_arguments}
        hidden = hide(part.args.inline, names, lambda _: HIDDEN)
        return dict(redact_arguments(hidden, names, self._secrets))

    def _quiet(self, value: Any) -> Any:
        return redact_value(value, self._secrets)


def _add_results(message: RecordedMessage, results: Mapping[str, ResultPart], quiet: Any) -> RecordedMessage:
    calls = []
    for call in message.calls:
        part = results.get(call.call)
        if part is not None:
            result = RecordedResult(code=part.code, value=quiet(part.value.inline), note=quiet(part.note))
            call = replace(call, result=result)
        calls.append(call)
    return replace(message, calls=calls)


def _verdict(gate_decision: GateDecision | None, settled: CallOutcome | None) -> str:
    if gate_decision is not None and gate_decision.kind != "settled":
        # A remembered answer is no rule of the catalog: without it the call needed approval.
        return "ask" if gate_decision.grant else gate_decision.kind
    if settled is None:
        return ""
    if settled.denied is not None:
        return "ask" if settled.denied.source in _ENDINGS else "deny"
    if settled.approval_id:
        return "ask"
    if settled.gate == "dry_run":
        return settled.gate
    return "run" if settled.code == "ok" or settled.gate == "execute" else settled.code


def _name(turn: TurnInput) -> str:
    texts = [words_of(message) for message in turn.messages if message.role == "user"]
    words = " ".join(texts[-1].split()) if texts else ""
    return words[:_NAME_CHARS] or f"turn {turn.turn_id}"
