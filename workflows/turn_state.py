"""The memory of one turn: messages, calls, usage, requests. No I/O."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple

from signoff.approvals.approval_book import ApprovalBook
from signoff.approvals.approval_outcomes import denial_from_request, late_result, repeated_outcome, waiting_outcome
from signoff.approvals.call_events import untaken_entry
from signoff.contracts.activity_messages import GateDecision, GateTask, ModelReply, Response, Tally, TurnLimits
from signoff.contracts.approval import ApprovalRequest, Card, TurnQuestion
from signoff.contracts.call import CallContext, CallOutcome, Place, RuleReference
from signoff.contracts.content import Content, text_of
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.ids import ApprovalKey, TurnKey, call_of_stand_in, completion_of, parse_approval_id, show_code
from signoff.contracts.limits import MAX_DENIALS_IN_A_ROW, MESSAGES_BYTES, TURN_RESULT_BYTES
from signoff.contracts.message import RESPONSE, CallPart, Message, ResultPart
from signoff.contracts.names import RESPOND
from signoff.contracts.turn import (
    CallView,
    Denial,
    FinalState,
    LiveState,
    ResponsePart,
    TokenUsage,
    TurnError,
    TurnInput,
    TurnResult,
    TurnView,
    WaitingCall,
)
from signoff.formats.replace import replace
from signoff.workflows.context_updates import ContextUpdates

_SHOWN: Final = TurnQuestion.model_fields.keys() & ApprovalRequest.model_fields.keys()
_BESIDE: Final = ("structured", "data_update", "context_update", "meta", "updates")
_LEFT_OUT: Final = Content(inline="[left out: the turn's result would be too large]")


class TurnState:
    """The state of one turn, shared by its parts. Callers pass the time."""

    def __init__(self, turn: TurnInput) -> None:
        self.turn = turn
        self.key = TurnKey(turn.tenant_id, turn.session_id, turn.turn_id)
        self.live: LiveState = "running"
        self.book = ApprovalBook(self.key)
        self.updates = ContextUpdates(turn)
        """Changes to the turn's context by its tools."""
        self.ctx = CallContext(
            actor=turn.actor,
            session=turn.session_id,
            turn=turn.turn_id,
            tenant=turn.tenant_id,
            channel=turn.channel,
            route=turn.route,
            step=turn.step,
            seal=turn.seal,
            user=turn.principal,
            extra=self.updates.extra,
            transient=turn.transient,
            trace=turn.trace,
        )
        """The context for policies, as of the latest batch."""
        self.waiting: dict[str, str] = {}
        """Maps call id to request code, for calls that the model knows are waiting."""
        self._batches: dict[int, _Batch] = {}
        self._judged: Tally | None = None
        self.actions: dict[str, str] = {}
        """Maps call id to the requested action: the start of the SHA-256 of tool and arguments."""
        self.stopped = False
        """True once the turn was cancelled: no request opens and no call starts."""
        self.messages: list[Message] = list(turn.messages)
        self.message_bytes = sum(json_size(message) for message in turn.messages)
        self.calls: dict[str, CallView] = {}
        self.usage = TokenUsage()
        self.limits = TurnLimits()
        self.leave_open = False
        self.completions = 0
        self.entered = 0
        """The last completion with its requests entered in the book."""
        self.active_seconds = 0.0
        self.tool_cost = 0.0
        self.tally = Tally()
        self.catalog = ""
        self.bad_responds = 0
        self.result: TurnResult | None = None

    def approval_id(self, call: str) -> str:
        return ApprovalKey(self.key, call).id

    def may_be_asked(self, approval_id: str) -> bool:
        """Return whether the gates may have asked this already, for a completion whose gate decisions have not reached
        the turn.
        """
        coming = self.approval_id(f"c{self.completions}.")
        return self.entered < self.completions and self.result is None and approval_id.startswith(coming)

    def open_call(self, approval_id: str) -> str:
        """Return the call of an approval id while it has no outcome. For a fallback, returns the original call."""
        left_out_names = parse_approval_id(approval_id)
        call = (
            "" if left_out_names is None or left_out_names.turn != self.key else call_of_stand_in(left_out_names.call)
        )
        view = self.calls.get(call)
        return call if view is not None and view.outcome is None else ""

    def question_of(self, call: CallPart, gate_decision: GateDecision, asked: TurnQuestion) -> TurnQuestion:
        """Complete a question of the gates with the data that they do not send."""
        return replace(
            asked,
            id=self.approval_id(call.call),
            call=call.call,
            tool=call.tool,
            args=asked.args or call.args,
            digest=gate_decision.digest,
            rule=gate_decision.rule,
        )

    def request_view(self, asked: TurnQuestion) -> ApprovalRequest:
        """Return the turn's view of a request, for queries. The store has the whole request."""
        shared = {name: getattr(asked, name) for name in TurnQuestion.model_fields if name in _SHOWN}
        ctx = self.ctx
        return ApprovalRequest(
            **shared,
            tenant=ctx.tenant,
            session=ctx.session,
            turn=ctx.turn,
            actor=ctx.actor,
            requester=ctx.user,
            channel=ctx.channel,
            card=Card(effect=asked.effect, note=asked.note),
        )

    def begin_batch(self, reply: ModelReply) -> None:
        needed = {completion_of(call) for call in self.waiting}
        self._batches = {number: each for number, each in self._batches.items() if number in needed}
        self._batches[self.completions] = _Batch(self.ctx, reply.withheld, reply.kept_at)

    def ctx_of(self, call: str) -> CallContext:
        """The policies see this context however late they judge."""
        return self._batch(call).ctx

    def gate_task(self, *calls: CallPart, **asked: Any) -> GateTask:
        """`asked` holds additional fields."""
        batch = self._batch(calls[0].call)
        batch_fields: dict[str, Any] = {
            "withheld": batch.withheld,
            "asked_since": batch.kept_at,
            "dry_run": self.turn.dry_run,
        }
        if self.turn.external is not None:
            batch_fields["ask_within"] = self.turn.external.ask_within
        return GateTask(**{"ctx": batch.ctx, "calls": calls, **batch_fields, **asked})

    def _batch(self, call: str) -> "_Batch":
        return self._batches[completion_of(call)]

    def let_wait(self, call: str) -> WaitingCall:
        request = self.book.get(self.approval_id(call))
        self.waiting[call] = "" if request is None else request.code
        return self._waiting_call(call)

    def waiting_calls(self) -> tuple[WaitingCall, ...]:
        """The gates do not ask these calls again."""
        return tuple(map(self._waiting_call, self.waiting))

    def _waiting_call(self, call: str) -> WaitingCall:
        # Use the current action: an edit has changed the call.
        return WaitingCall(action=self.actions[call], approval_id=self.approval_id(call), code=self.waiting[call])

    def settled_meanwhile(self, gate_decision: GateDecision) -> CallOutcome | None:
        """Return the outcome of a call that matches a denied or waiting one, or `None`.

        The gates judged the call with its completion, before they could see denials and edits that arrived later.
        """
        if gate_decision.kind == "settled":
            return None
        call, action = gate_decision.call, gate_decision.action
        tool = self.calls[call].tool
        denial = next((each for each in self.session_denials() if each.action == action), None)
        if denial is not None:
            return repeated_outcome(denial, call, tool)
        waiting = next((each for each in self.waiting_calls() if each.action == action), None)
        return None if waiting is None else waiting_outcome(call, tool, waiting)

    def judge_from(self) -> Tally:
        self._judged = self.tally
        return self.tally

    def count_batch(self, after: Tally) -> None:
        """Fallbacks counted in between stay counted."""
        counted = _count_between(self.tally, self._judged or self.tally, after)
        self.tally = replace(counted, recent=after.recent)

    def count_fallback(self, before: Tally, after: Tally) -> None:
        # Ignore fallbacks between equal calls: the model still repeats itself.
        self.tally = _count_between(self.tally, before, after)

    def denials(self) -> tuple[Denial, ...]:
        # Only denied approvals: giving up an unknown outcome does not forbid the call.
        denied = (each for each in self.book.all() if each.state == "denied" and each.kind == "approval")
        return tuple(denial_from_request(each, self.actions[each.call]) for each in denied)

    def session_denials(self) -> tuple[Denial, ...]:
        """The gates repeat earlier denials of the session."""
        return (*self.turn.denied, *self.denials())

    def change_context(self, settled: list[CallOutcome], now: datetime) -> list[CallOutcome]:
        if all(outcome.updates is None and outcome.place is None for outcome in settled):
            return settled
        applied = self.updates.apply(settled)
        self.ctx = replace(self.ctx, extra=self.updates.extra)
        for refusal in applied.refused:
            call, tool = refusal.outcome.call, refusal.outcome.tool
            self.book.unwritten.add(untaken_entry(self.ctx, call, tool, refusal.names, refusal.why, now))
        for outcome in applied.outcomes:
            began = self.ctx_of(outcome.call) if outcome.place is not None else self.ctx
            # The first move counts: no call moves the turn from a place where it was not proposed.
            if (began.route, began.step) == (self.ctx.route, self.ctx.step):
                self._move(outcome.place)
        return applied.outcomes

    def _move(self, place: Place | None) -> None:
        # A worker sealed this place. With any other values, no activity runs a call there.
        if place is not None:
            self.ctx = replace(self.ctx, route=place.route, step=place.step, seal=place.seal)

    @property
    def moved_to(self) -> Place | None:
        """`None` if the turn is still where it began."""
        ctx = self.ctx
        if (ctx.route, ctx.step) == (self.turn.route, self.turn.step):
            return None
        return Place(actor=ctx.actor, route=ctx.route, step=ctx.step, seal=ctx.seal)

    def append_message(self, message: Message) -> None:
        self.messages.append(message)
        self.message_bytes += json_size(message)

    def add_completion(self, reply: ModelReply) -> tuple[CallPart, ...]:
        """Returns the calls to settle, in order, without `respond`."""
        self.usage = self.usage + reply.usage
        if self.completions == 1:
            self.limits, self.catalog, self.leave_open = reply.limits, reply.catalog, reply.leave_open
        self._move(reply.place)
        self.append_message(reply.message)
        calls = reply.calls
        for part in calls:
            preview = text_of(part.args) if part.args.blob else ""
            self.calls[part.call] = CallView(call=part.call, tool=part.tool, state="proposed", args_preview=preview)
        return calls

    def show_stand_in(self, part: CallPart, call: str) -> None:
        self.calls[part.call] = CallView(call=part.call, tool=part.tool, state="proposed", stands_for=call)

    def siblings(self, call: str) -> tuple[str, ...]:
        """Return the other calls of the same completion that have no outcome yet, in order."""
        beside = (each for each in self.calls.values() if completion_of(each.call) == completion_of(call))
        return tuple(view.call for view in beside if view.outcome is None and view.call != call)

    def count_work(self, outcome: CallOutcome) -> None:
        self.tool_cost += outcome.cost
        self.active_seconds += outcome.duration_ms / 1000

    def show_state(self, call: str, state: str, rule: RuleReference | None = None) -> None:
        view = self.calls[call]
        self.calls[call] = replace(view, state=state, rule=rule or view.rule)

    def conclude(self, outcome: CallOutcome) -> None:
        """The siblings may still wait."""
        view = self.calls[outcome.call]
        self.calls[outcome.call] = replace(view, state=outcome.code, outcome=outcome)

    def settle(self, calls: tuple[CallPart, ...], outcomes: list[CallOutcome], extra: tuple[ResultPart, ...]) -> None:
        """Append the one result of each call to the conversation, in input order."""
        for outcome in outcomes:
            if outcome.call not in self.waiting:
                self.conclude(outcome)
        parts = tuple(_result(call, outcome) for call, outcome in zip(calls, outcomes, strict=True))
        self.append_message(Message(role="tool", parts=(*parts, *extra)))
        self._count(outcomes)

    def tell(self, outcomes: list[CallOutcome]) -> None:
        for outcome in outcomes:
            self.conclude(outcome)
        parts = tuple(late_result(outcome, self.waiting.pop(outcome.call)) for outcome in outcomes)
        if parts:
            self.append_message(Message(role="tool", parts=parts))
        self._count(outcomes)

    def _count(self, outcomes: list[CallOutcome]) -> None:
        # The turn's result repeats these in addition to the messages' values.
        self.message_bytes += sum(json_size(each) for outcome in outcomes for each in _beside(outcome))
        denials = self.tally.denials
        for outcome in outcomes:
            # Only a success resets the count. Otherwise a model could continue to ask by failing in between.
            denials = denials + 1 if outcome.code == "denied" else 0 if outcome.code == "ok" else denials
        self.tally = replace(self.tally, denials=denials)

    def reached_cap(self) -> TurnError | None:
        """Return the limit that ends the turn before another completion, or `None`."""
        limits = self.limits
        if self.tally.denials >= MAX_DENIALS_IN_A_ROW:
            return TurnError(code="denial_limit", message=f"{MAX_DENIALS_IN_A_ROW} calls in a row were denied")
        if self.completions >= limits.completions:
            return TurnError(code="completion_limit", message=f"no answer within {limits.completions} completions")
        if self.tally.calls >= limits.calls:
            return TurnError(code="call_limit", message=f"more than {limits.calls} tool calls")
        if limits.cost is not None and self.usage.cost + self.tool_cost >= limits.cost:
            return TurnError(code="cost_limit", message=f"the turn's budget of {limits.cost} USD is spent")
        if self.active_seconds >= limits.active_seconds:
            return TurnError(code="time_limit", message=f"more than {limits.active_seconds:.0f} s of work")
        if self.message_bytes > MESSAGES_BYTES:
            return TurnError(code="conversation_limit", message=f"the conversation is over {MESSAGES_BYTES} bytes")
        return None

    def answer_result(self, response: Response) -> TurnResult:
        words = ResponsePart(type=RESPONSE, content=response.text)
        result = self.final_result(response.state, (words, *response.parts))
        return replace(result, pass_to=response.pass_to)

    def final_result(
        self, state: FinalState, parts: tuple[ResponsePart, ...] = (), error: TurnError | None = None
    ) -> TurnResult:
        # A fallback's outcome is part of its original call: the model proposed one call and gets one result.
        proposed = [self._with_waiting(view) for view in self.calls.values() if not view.stands_for]
        whole = TurnResult(
            state=state,
            parts=parts,
            calls=tuple(view.outcome for view in proposed if view.outcome is not None),
            usage=self.usage,
            completions=self.completions,
            error=error,
            actor=self.turn.actor,
            turn=self.turn.turn_id,
            tool_calls=self.tally.calls,
            cost=self.usage.cost + self.tool_cost,
            active_seconds=round(self.active_seconds, 3),
        )
        return bound_result(whole)

    def _with_waiting(self, view: CallView) -> CallView:
        """Give a pending call a `waiting` outcome: a turn may end before it."""
        if view.outcome is not None or view.call not in self.waiting:
            return view
        waits = waiting_outcome(view.call, view.tool, self._waiting_call(view.call))
        return replace(view, outcome=waits)

    def view(self, started_at: datetime) -> TurnView:
        requests = {asked.call: self.request_view(asked) for asked in self.book.all()}
        calls = tuple(replace(v, approval=requests.get(v.call)) for v in self.calls.values())
        return TurnView(
            tenant=self.key.tenant,
            session=self.key.session,
            turn=self.key.turn,
            actor=self.turn.actor,
            state=self.live,
            requester=self.turn.principal,
            messages=tuple(self.messages),
            calls=calls,
            result=self.result,
            started_at=started_at,
            refusals=self.book.refused,
            catalog=self.catalog,
            in_session=self.turn.in_session,
            route=self.ctx.route,
            step=self.ctx.step,
            seal=self.ctx.seal,
        )


class _Batch(NamedTuple):
    """The context in which the calls of one completion are judged."""

    ctx: CallContext
    withheld: tuple[str, ...]
    """Tools withheld from the model. None of them runs in this batch."""
    kept_at: datetime | None
    """When the store saved the reply, by its own clock (UTC)."""


def _count_between(now: Tally, before: Tally, after: Tally) -> Tally:
    if now == before:
        return replace(after, recent=now.recent)
    more = {name: count - before.per_tool.get(name, 0) for name, count in after.per_tool.items()}
    per_tool = {**now.per_tool, **{name: now.per_tool.get(name, 0) + count for name, count in more.items()}}
    return replace(now, calls=now.calls + after.calls - before.calls, per_tool=per_tool)


def skipped_outcome(call: CallPart) -> CallOutcome:
    """Return the outcome of a call in the same completion as `respond` (Q2): not executed."""
    text = "Not executed: the turn ended with the response in the same completion."
    return CallOutcome(call=call.call, tool=call.tool, code="skipped", gate="respond", value=Content(inline=text))


def correction(reply: ModelReply) -> ResultPart:
    provider = next(
        (p.provider_call for p in reply.message.parts if isinstance(p, CallPart) and p.call == reply.respond_call), ""
    )
    return ResultPart(
        call=reply.respond_call,
        provider_call=provider,
        tool=RESPOND,
        code="input_invalid",
        value=Content(inline=reply.respond_error),
    )


def untaken_answer(reply: ModelReply, codes: Iterable[str]) -> tuple[ResultPart, ...]:
    """Return the result of a `respond` that does not end the turn because calls wait. Empty for plain text."""
    if not reply.respond_call:
        return ()
    waits = f"waiting for approval, {', '.join(map(show_code, codes))}"
    words = f"{waits}. After you receive the outcome, your next answer ends this turn."
    return (replace(correction(reply), code="waiting", value=Content(inline=words)),)


def _result(call: CallPart, outcome: CallOutcome) -> ResultPart:
    return ResultPart(
        call=call.call,
        provider_call=call.provider_call,
        tool=call.tool,
        code=outcome.code,
        value=outcome.value,
        note=outcome.note,
    )


def _beside(outcome: CallOutcome) -> Iterator[FrozenModel]:
    beside = (outcome.structured, outcome.data_update, outcome.context_update, outcome.meta, outcome.updates)
    yield from (each for each in beside if each is not None)


def bound_result(result: TurnResult) -> TurnResult:
    """Truncate `result` to `TURN_RESULT_BYTES` of JSON, because Temporal would retry a larger completion without end.

    The earliest calls lose their data first: the answer depends on the latest. The workflow's own messages keep every
    value.
    """
    over = json_size(result) - TURN_RESULT_BYTES
    if over <= 0:
        return result
    calls = list(result.calls)
    for shorter in (_without_beside, _bare):
        for at, outcome in enumerate(calls):
            short = shorter(outcome)
            saved = json_size(outcome) - json_size(short)
            # Some outcomes grow: the note about a removed value may be longer than the value.
            if over > 0 and saved > 0:
                calls[at] = short
                over -= saved
    return replace(result, calls=tuple(calls))


def json_size(shape: FrozenModel) -> int:
    """Return the bytes of `shape` as JSON, as histories hold it."""
    return len(shape.on_wire())


def _without_beside(outcome: CallOutcome) -> CallOutcome:
    left_out = tuple(name for name, each in outcome if name in _BESIDE and each is not None)
    return replace(outcome, **dict.fromkeys(left_out), left_out=left_out) if left_out else outcome


def _bare(outcome: CallOutcome) -> CallOutcome:
    denied = outcome.denied and replace(outcome.denied, reason="")
    left_out_names = ("value", "note") if outcome.note else ("value",)
    return replace(outcome, value=_LEFT_OUT, note="", denied=denied, left_out=(*outcome.left_out, *left_out_names))
