"""Replays a case: present gates judge its calls, or a model's, and the case answers them.

No tools run and no approvers are asked. Facts that gates cannot find out alone, such as the availability of a tool,
come from the case.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from signoff.approvals.redaction import HIDDEN, hide
from signoff.contracts.activity_messages import Tally
from signoff.contracts.approval import Terms
from signoff.contracts.call import PERMISSION_RULE, REQUESTER_RULE, REQUIRES_APPROVAL, CallContext, RuleReference
from signoff.contracts.canonical_json import NotCanonical, sha256_hex
from signoff.contracts.completion import CompletionRequest, Driver
from signoff.contracts.content import Content
from signoff.contracts.errors import ConfigError
from signoff.contracts.message import CallPart, Message, Part, ResultPart, TextPart
from signoff.contracts.names import RESPOND
from signoff.evaluation.case_file import EvaluationCase, RecordedCall, RecordedCompletion, RecordedMessage
from signoff.languages.remarks import english
from signoff.policy.compiled_policy import PolicyVerdict
from signoff.policy.handler_verdict import HandlerVerdict, apply_handler_verdict, handler_rule
from signoff.registry.actor import instructions_at
from signoff.registry.capabilities import KINDS
from signoff.registry.catalog import Catalog
from signoff.registry.gates.call_parts import call_parts
from signoff.registry.gates.judged_call import JudgedCall
from signoff.registry.gates.pipeline import GateFacts, by_verdict, judge, next_tally
from signoff.registry.hooks import Permission

UNRECORDED: Final = "unrecorded"
"""The code of a call without an answer in the case."""
NOT_LOOKED_AT: Final = (
    "not checked: freezes, remembered answers and the uses of a tool; the answers of a tool's own functions are the "
    "recorded ones"
)
_UNRECORDED_TEXT: Final = "unrecorded: the case holds no answer to this call"
Answerer = Literal["record", "gates", "nobody"]


@dataclass(frozen=True)
class CaseModel:
    """A model that replaces the recorded one."""

    name: str
    driver: Driver
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PlayedCall:
    """One replayed call: the present gates' verdict, and the source of its answer."""

    call: str
    tool: str
    args: dict[str, Any]
    """Secret ones are hidden."""
    verdict: str
    """`run`, `ask`, `deny`, or the code with which a gate ended it."""
    gate: str = ""
    rule: str = ""
    why: str = ""
    terms: Terms | None = None
    answered: Answerer = "record"
    """The source of its answer, `nobody` if the case has none."""


@dataclass(frozen=True)
class PlayResult:
    """The result of a replay."""

    calls: tuple[PlayedCall, ...]
    ending: str
    answer: str = ""

    @property
    def unrecorded(self) -> int:
        """Counts calls without an answer in the case."""
        return sum(each.answered == "nobody" for each in self.calls)


def call_key(tool: str, args: Any) -> str:
    """The caller has hidden secret arguments."""
    try:
        return sha256_hex([tool, args])
    except NotCanonical:
        # Arguments that cannot be encoded were never recorded.
        return ""


def find_misfits(case: EvaluationCase, catalog: Catalog) -> list[str]:
    """Return obstacles to a replay, a sentence each."""
    try:
        actor = catalog.actor(case.actor)
        catalog.scopes[actor.name].check(case.route, case.step, tuple(case.transient))
    except ConfigError as error:
        return [error.message]
    view = catalog.tool_view(case.ctx(1))
    found: list[str] = []
    for call in _recorded_calls(case):
        tool = view.tool(call.tool)
        if tool is None:
            continue
        hidden = {name for name in tool.masked_arguments if HIDDEN in _values_at(call.args, name)}
        for path, message in tool.schema.check(call.args):
            # The gates would refuse the placeholder of a secret.
            if path in hidden:
                hidden_place = f"call {call.call} of `{call.tool}`: the hidden `{path}`"
                found.append(f"{hidden_place} {english(message)}; write a value that fits")
    return found


async def play(case: EvaluationCase, catalog: Catalog, model: CaseModel | None = None) -> PlayResult:
    """The case must have no misfit. Raises the errors of the model's driver."""
    player = _Player(case, catalog)
    return await player.play_with(model) if model is not None else player.play_recorded()


@dataclass
class _Player:
    case: EvaluationCase
    catalog: Catalog
    tally: Tally = field(default_factory=Tally)
    calls: list[PlayedCall] = field(default_factory=list)
    left: dict[str, list[RecordedCall]] = field(init=False)
    last: dict[str, RecordedCall] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.left = defaultdict(list)
        for call in _recorded_calls(self.case):
            self.left[call_key(call.tool, call.args)].append(call)

    def play_recorded(self) -> PlayResult:
        for number, completion in enumerate(self.case.completions, 1):
            for call in completion.calls:
                self._settle(number, _part(call), call.args)
        return PlayResult(tuple(self.calls), self.case.ending, self.case.answer)

    async def play_with(self, model: CaseModel) -> PlayResult:
        case, actor = self.case, self.catalog.actor(self.case.actor)
        messages = [message for each in case.messages for message in _messages(each)]
        form, corrected = self.catalog.respond(actor.name), False
        for number in range(1, actor.limits.completions + 1):
            ctx, withheld = case.ctx(number), frozenset(self._completion(number).withheld)
            request = CompletionRequest(
                model=model.name,
                instructions=instructions_at(actor, ctx.route, ctx.step),
                messages=tuple(messages),
                provider=(None,) * len(messages),
                tools=self.catalog.offered_tools(actor.name, ctx, withheld),
                settings=dict(model.settings),
            )
            completion = await model.driver.complete(request)
            parts = call_parts(completion.calls, number)
            messages.append(_assistant(completion.text, parts))
            respond = next((part for part in parts if part.tool == RESPOND), None)
            if respond is not None:
                parsed = respond.malformed or form.parse(respond.args.inline, ctx.extra.get("data"))
                if not isinstance(parsed, str):
                    return PlayResult(tuple(self.calls), parsed.state, parsed.text)
                if corrected:
                    return PlayResult(tuple(self.calls), "complete", completion.text)
                # As in a turn: an invalid response is returned to the model once.
                corrected = True
                messages.append(Message(role="tool", parts=(_result(respond, "input_invalid", parsed),)))
                continue
            if not parts:
                return PlayResult(tuple(self.calls), "complete", completion.text)
            answers = [self._settle(number, part, part.args.inline) for part in parts]
            messages.append(Message(role="tool", parts=tuple(answers)))
        return PlayResult(tuple(self.calls), "error", f"no answer within {actor.limits.completions} completions")

    def _completion(self, number: int) -> RecordedCompletion:
        """A model may need more completions than were recorded: return the last one."""
        return self.case.completions[min(number, len(self.case.completions)) - 1]

    def _settle(self, number: int, call: CallPart, args: Any) -> ResultPart:
        shown = self._mask(call.tool, args)
        recorded = self._take(call_key(call.tool, shown))
        found = self._judge(number, call, args, recorded)
        played = self._describe(number, call, shown, found)
        if found.kind == "settled" and found.outcome is not None:
            self.calls.append(dataclasses.replace(played, answered="gates"))
            return _result(call, found.outcome.code, found.outcome.value.inline)
        if recorded is not None and recorded.result is not None and _answers(recorded, found):
            self.calls.append(played)
            return _result(call, recorded.result.code, recorded.result.value, recorded.result.note)
        self.calls.append(dataclasses.replace(played, answered="nobody"))
        return _result(call, UNRECORDED, _UNRECORDED_TEXT)

    def _take(self, key: str) -> RecordedCall | None:
        """After the last call with the same effect, return that again."""
        waiting = self.left.get(key)
        if waiting:
            self.last[key] = waiting.pop(0)
        return self.last.get(key)

    def _mask(self, name: str, args: Any) -> dict[str, Any]:
        masked = {path for tool in self.catalog.tools_named(name) for path in tool.masked_arguments}
        return dict(hide(args, masked, lambda _: HIDDEN)) if isinstance(args, Mapping) else {}

    def _judge(self, number: int, call: CallPart, args: Any, recorded: RecordedCall | None) -> JudgedCall:
        ctx = self.case.ctx(number)
        known = self._facts(number, call, recorded)
        found = judge(self.catalog, ctx, call, args, self.tally, dry_run=self.case.dry_run, known=known)
        self.tally = next_tally(self.tally, call, args, found)
        found = self._hear_handler(ctx, call, args, found, recorded)
        if recorded is not None and recorded.rule == REQUESTER_RULE and found.kind == "run":
            # The requester was uncertain at that time, for which the catalog has no rule.
            return found.decide(kind="ask")
        return found

    def _facts(self, number: int, call: CallPart, recorded: RecordedCall | None) -> GateFacts:
        completion, gate = self._completion(number), "" if recorded is None else recorded.gate
        why = "" if recorded is None or recorded.result is None else str(recorded.result.value)
        away = frozenset(completion.withheld) | ({call.tool} if gate == "available" else frozenset())
        return GateFacts(
            unavailable=away,
            backends=frozenset() if gate == "capabilities" else frozenset(KINDS),
            permission=None if recorded is None else _permission(recorded),
            spent={call.call: why} if gate == "usage" else {},
            at=completion.judged_at,
        )

    def _hear_handler(
        self, ctx: CallContext, call: CallPart, args: Any, found: JudgedCall, recorded: RecordedCall | None
    ) -> JudgedCall:
        if found.before_handler is None or found.tool is None or recorded is None:
            return found
        policy, view = self.catalog.policy(found.tool.activity), self.catalog.tool_view_at(ctx, found.at)
        answer = _handler_answer(recorded, handler_rule(policy))
        if answer is None:
            return found
        verdict = apply_handler_verdict(policy, found.before_handler, answer)
        bound = view.bounds_verdict(found.tool, policy, found.args(args))
        decision = by_verdict(view, call, found.tool, verdict, bound, found.objection)
        return decision._replace(corrected=found.corrected, notes=found.notes, at=found.at)

    def _describe(self, number: int, call: CallPart, shown: dict[str, Any], found: JudgedCall) -> PlayedCall:
        verdict: PolicyVerdict | None = found.verdict
        terms: Terms | None = None
        if found.kind == "ask" and found.tool is not None:
            terms = self.catalog.terms(found.tool.activity, verdict).alone()
        return PlayedCall(
            call=call.call,
            tool=call.tool,
            args=shown,
            verdict=verdict_word(found),
            gate=found.gate if found.kind == "settled" else "",
            rule="" if verdict is None else verdict.rule.label,
            why=found.message or ("" if verdict is None else verdict.why),
            terms=terms,
        )


def verdict_word(found: JudgedCall) -> str:
    """Return `run`, `ask`, `deny`, or the code with which a gate ended the call."""
    if found.kind != "settled":
        return found.kind
    if found.code == "denied":
        return "deny"
    return found.gate if found.code == "ok" else found.code


def _answers(recorded: RecordedCall, found: JudgedCall) -> bool:
    # A recorded denial answers a call that needs approval again. It does not answer a call that would run: no tool has.
    return recorded.ran or (found.kind == "ask" and recorded.decision is not None)


def _permission(recorded: RecordedCall) -> Permission:
    if recorded.gate == "permission":
        return Permission.deny("" if recorded.decision is None else recorded.decision.reason)
    return Permission.deny(can_override=True) if recorded.rule == PERMISSION_RULE else Permission.allow()


def _handler_answer(recorded: RecordedCall, rule: RuleReference | None) -> HandlerVerdict | None:
    noted = recorded.rule
    if rule is not None and noted is not None and noted.handler == rule.handler:
        level: Literal["user", "admin"] = "admin" if noted.answer == "admin" else "user"
        words: dict[str, HandlerVerdict] = {
            "run": HandlerVerdict("auto"),
            "ask": HandlerVerdict("ask", level, failed=noted.answer == "failed"),
            "deny": HandlerVerdict("deny"),
        }
        return words.get(recorded.verdict)
    if noted == REQUIRES_APPROVAL and recorded.verdict == "ask":
        # Neither a rule nor the handler allowed the call. A handler without rules would have been named.
        return HandlerVerdict("abstain")
    # Another rule asked and the handler did not add to it, or the handler was never called.
    return HandlerVerdict("auto") if recorded.verdict in ("run", "ask") else None


def _recorded_calls(case: EvaluationCase) -> Iterable[RecordedCall]:
    return (call for completion in case.completions for call in completion.calls)


def _part(call: RecordedCall) -> CallPart:
    return CallPart(
        call=call.call,
        provider_call=call.call,
        tool=call.tool,
        args=Content(inline=call.args),
        malformed=call.malformed,
        surplus=call.surplus,
    )


def _messages(message: RecordedMessage) -> Iterable[Message]:
    if message.role == "user":
        yield Message(role="user", parts=(TextPart(text=Content(inline=message.text)),))
        return
    parts = tuple(_part(call) for call in message.calls)
    yield _assistant(message.text, parts)
    results = [
        _result(part, call.result.code, call.result.value, call.result.note)
        for part, call in zip(parts, message.calls, strict=True)
        if call.result is not None
    ]
    if results:
        yield Message(role="tool", parts=tuple(results))


def _assistant(text: str, calls: tuple[CallPart, ...]) -> Message:
    words: tuple[Part, ...] = (TextPart(text=Content(inline=text)),) if text else ()
    return Message(role="assistant", parts=(*words, *calls))


def _result(call: CallPart, code: str, value: Any, note: str = "") -> ResultPart:
    return ResultPart(
        call=call.call,
        provider_call=call.provider_call,
        tool=call.tool,
        code=code,
        value=Content(inline=value),
        note=note,
    )


def _values_at(args: Any, path: str) -> list[Any]:
    """Items of a list have the list's name."""
    found: list[Any] = []
    hide(args, {path}, found.append)
    return found
