"""Proves a turn before it is shown: its claims about questions and effects count only if the store confirms them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from signoff.approvals.approval_outcomes import answer_for_model
from signoff.approvals.digest import doubt_digest
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallOutcome, ToolDenied
from signoff.contracts.content import Content
from signoff.contracts.errors import NotFound
from signoff.contracts.ids import ApprovalKey, TurnKey, is_call, parse_approval_id, stand_in_id
from signoff.contracts.limits import MAX_FALLBACKS
from signoff.contracts.person import Principal
from signoff.contracts.turn import CallView, TurnView
from signoff.formats.replace import replace
from signoff.gateway.signed_start import SignedStart
from signoff.registry.catalog import Catalog
from signoff.store.request_reader import LoadedRequest, RequestReader
from signoff.store.store import Store
from signoff.store.tickets import Ticket, digest_of_key

UNPROVED: Final = "The turn says that this ran; the store has no ticket of it."
UNDENIED: Final = "The turn says that somebody denied this; the store has no such answer."
UNANSWERED: Final = "The turn claims a person's answer. The store has no such answer."
_NOBODY: Final = Principal(user="")
_AGREED: Final = ("approved", "happened")
_ON_THE_WAY: Final = ("proposed", "running", "waiting", "permitted", "used")


async def proved_view(
    view: TurnView,
    begun: SignedStart,
    store: Store,
    requests: RequestReader,
    catalog: Catalog,
    tickets: Sequence[Ticket] | None = None,
) -> TurnView:
    """Takes requests from the store, and leaves out effects that have no ticket.

    A forged workflow can claim anything. Its words stay claims; the requester comes from `begun`. `tickets` are the
    turn's, if already read. Raises `StoreUnavailable`.
    """
    requester = begun.requester or (view.requester if requests.development else _NOBODY)
    view = replace(view, requester=requester)
    result = view.result
    if not (view.calls or (result is not None and result.calls)):
        return view
    tickets = await store.tickets_of_turn(begun.key.workflow_id) if tickets is None else tickets
    asked = await _load_requests(begun, requests)
    finished = [each for each in tickets if each.state == "done" and _is_of(each, begun)]
    all_calls = (*view.calls, *_calls_of(view))
    proof = CallProof(
        turn=begun.key,
        catalog=catalog,
        asked=asked,
        done=tuple(each for each in finished if not _is_answer(each)),
        answered=tuple(filter(_is_answer, finished)),
        earlier=await _earlier(begun.key, all_calls, requests),
        dry_run=begun.dry_run,
    )
    calls = tuple(proof.call(call) for call in view.calls)
    if result is None:
        return replace(view, calls=calls)
    outcomes = tuple(proof.outcome(each) for each in result.calls)
    return replace(view, calls=calls, result=replace(result, calls=outcomes))


@dataclass(frozen=True)
class CallProof:
    """The store's facts about the calls of a turn, which judge the turn's claims.

    `asked` maps a call to the latest revision of its question. `done` has the tickets of finished runs, `answered`
    the tickets of persons' answers. `earlier` has the requests that a repeated denial may name. A `dry_run` asks no
    approver and runs nothing.
    """

    turn: TurnKey
    catalog: Catalog
    asked: Mapping[str, LoadedRequest] = field(default_factory=dict)
    done: Sequence[Ticket] = ()
    answered: Sequence[Ticket] = ()
    earlier: Mapping[str, ApprovalRequest] = field(default_factory=dict)
    dry_run: bool = False

    def call(self, view: CallView) -> CallView:
        outcome = None if view.outcome is None else self.outcome(replace(view.outcome, call=view.call))
        request = self.request(view.call)
        tool = view.tool if request is None else request.tool
        if outcome is not None and outcome.code == "ok" and request is not None and not self._ran(outcome, request):
            # A rule let it run after that question had ended: no approver of the question let it run.
            request = None
        on_the_way = view.state if view.state in _ON_THE_WAY else _ON_THE_WAY[0]
        return replace(
            view,
            tool=tool,
            state=on_the_way if outcome is None else outcome.code,
            approval=request,
            outcome=outcome,
            stands_for=view.stands_for if view.call in _stand_ins(view.stands_for) else "",
        )

    def outcome(self, outcome: CallOutcome) -> CallOutcome:
        """Shows a call as done only with its ticket, as decided only by authors of decisions."""
        request = self.request(outcome.call)
        outcome = outcome if request is None else replace(outcome, tool=request.tool)
        if outcome.code == "ok" and not self._is_done(outcome):
            return CallOutcome(
                call=outcome.call, tool=outcome.tool, code="in_doubt", gate="execute", value=_text(UNPROVED)
            )
        if outcome.code == "answered":
            return self._prove_answer(outcome)
        if outcome.denied is not None:
            return self._prove_denial(outcome, outcome.denied)
        if outcome.code == "denied":
            return _refuse_denial(outcome)
        if outcome.code == "waiting":
            # It repeats another call that waits for approvers.
            known = any(each.request.id == outcome.approval_id for each in self.asked.values())
            return outcome if known else replace(outcome, approval_id="")
        decided = self._deciding_call(outcome)
        approved, edited = self._people(decided, outcome)
        return replace(
            outcome,
            approval_id=outcome.approval_id if outcome.approval_id == self._asked_as(decided) else "",
            decided_by=outcome.decided_by if outcome.decided_by in approved else "",
            edited_by=outcome.edited_by if outcome.edited_by in edited else "",
        )

    def request(self, call: str) -> ApprovalRequest | None:
        """Return the request from the store."""
        loaded = self.asked.get(call)
        return None if loaded is None else loaded.request

    def _is_done(self, outcome: CallOutcome) -> bool:
        if outcome.gate == "dry_run":
            # Approvers were asked, or the call has run: then it was not a dry run.
            return (
                self.dry_run and outcome.call not in self.asked and all(each.call != outcome.call for each in self.done)
            )
        if outcome.fallback:
            # A fallback's effect counts for the call that it replaced. The fallback had its own call id.
            tried = _stand_ins(outcome.call)
            return any(each.call in tried and self._bears_out(each, outcome.fallback) for each in self.done)
        if any(each.call == outcome.call and self._bears_out(each, outcome.tool) for each in self.done):
            return True
        if any(each.call == outcome.call for each in self.answered):
            return False
        tools = self.catalog.tools_named(outcome.tool)
        # Read-only tools take no ticket unless their use is counted.
        return bool(tools) and all(tool.read_only and tool.usage_limit is None for tool in tools)

    def _bears_out(self, ticket: Ticket, tool: str) -> bool:
        """Return whether the run matches the call's claim and the approvers' question."""
        request = self.request(ticket.call)
        # A call that ran under other rules without approvers has no question about that run.
        free = request is None or request.state in ("lapsed", "cancelled")
        return ticket.tool == tool and (free or (request is not None and _names(request, ticket)))

    def _ran(self, outcome: CallOutcome, request: ApprovalRequest) -> bool:
        """True without a ticket: the tool takes none, or failed before its fallback."""
        tickets = [each for each in self.done if each.call == outcome.call]
        return not tickets or any(_names(request, each) for each in tickets)

    def _deciding_call(self, outcome: CallOutcome) -> str:
        """Return the call whose approvers decided: the fallback's, if one ended it."""
        tried = _stand_ins(outcome.call) if outcome.fallback else ()
        matches = (call for call in tried if call in self.asked and self.asked[call].request.tool == outcome.fallback)
        return next(matches, outcome.call)

    def _asked_as(self, call: str) -> str:
        return ApprovalKey(self.turn, call).id if call in self.asked else ""

    def _people(self, call: str, outcome: CallOutcome) -> tuple[set[str], set[str]]:
        """Return the authors of decisions that let the call run or confirm it, and the editors of its arguments."""
        request, loaded = self.request(call), self.asked.get(call)
        if request is None or loaded is None:
            return set(), set()
        questions = loaded.rows.questions
        requests = [*(loaded.rows.request(each) for each in questions if each.revision != request.revision), request]
        approvals = [each for each in requests if each.kind == "approval"]
        # Only the latest revision lets a call run. Each question about an unknown outcome has its own decision.
        asked = [each for each in requests if each.kind == "in_doubt"] + approvals[-1:]
        ran = [each for each in self.done if each.call == call]
        counting = [each for each in asked if not ran or any(_names(each, ticket) for ticket in ran)]
        agreed = {name for each in counting for name in _find_agreeing(each)}
        if outcome.code == "in_doubt" and request.kind == "in_doubt":
            # For an unknown outcome, a denial is an answer too: still unknown, or do not retry.
            agreed.add(request.decided_by)
        changes = {each.edit_delivery for each in questions}
        votes = [each.vote for each in loaded.rows.answers if not each.void]
        made = [each for each in votes if each.decision.edited_args is not None]
        edited = {each.subject for each in made if each.decision.delivery_id in changes}
        return agreed, edited | {request.edited_by}

    def _prove_denial(self, outcome: CallOutcome, denied: ToolDenied) -> CallOutcome:
        people = {"decided_by": "", "reason": denied.reason}
        if denied.source == "human":
            request = self._denial(self._deciding_call(outcome))
            if request is None:
                return _refuse_denial(outcome)
            people = {"decided_by": request.decided_by, "reason": request.reason or denied.reason}
            people["approval_id"] = request.id
        elif denied.source == "repeat":
            request = self.earlier.get(denied.approval_id)
            names = set() if request is None else {vote.subject for vote in request.votes}
            if request is None or not set(denied.decided_by.split(", ")) <= names:
                people = {"decided_by": "", "approval_id": "", "reason": UNDENIED}
            else:
                people = {}
        elif denied.source == "cancelled":
            request = self.request(self._deciding_call(outcome))
            people = {"decided_by": request.decided_by if request is not None else ""}
        proved = replace(denied, **people)
        if proved == denied:
            return replace(outcome, decided_by=proved.decided_by, edited_by="")
        return replace(
            outcome,
            denied=proved,
            decided_by=proved.decided_by,
            approval_id=proved.approval_id,
            edited_by="",
            value=Content(inline=proved.model_dump(mode="json")),
        )

    def _prove_answer(self, outcome: CallOutcome) -> CallOutcome:
        """Shows the answer of the store, never that of the turn."""
        call = self._deciding_call(outcome)
        loaded = self.asked.get(call)
        rows = None if loaded is None else loaded.rows
        revisions = () if rows is None else tuple(rows.request(each) for each in reversed(rows.questions))
        taken = [each for each in self.answered if each.call == call]
        matches = (each for each in revisions if each.state == "answered")
        request = next((each for each in matches if any(_names(each, ticket) for ticket in taken)), None)
        if request is None:
            return CallOutcome(
                call=outcome.call, tool=outcome.tool, code="refused", gate="approval", value=_text(UNANSWERED)
            )
        word = request.votes[-1].decision
        return replace(
            outcome,
            value=Content(inline=answer_for_model(request.decided_name or request.decided_by, word)),
            note="",
            approval_id=request.id,
            decided_by=request.decided_by,
            edited_by="",
            denied=None,
            structured=None,
        )

    def _denial(self, call: str) -> ApprovalRequest | None:
        """Considers every revision."""
        request, loaded = self.request(call), self.asked.get(call)
        if request is None or loaded is None:
            return None
        revisions = (request, *(loaded.rows.request(each) for each in loaded.rows.questions))
        return next((each for each in revisions if each.state == "denied" and each.kind == "approval"), None)


async def _load_requests(begun: SignedStart, requests: RequestReader) -> dict[str, LoadedRequest]:
    loaded: dict[str, LoadedRequest] = {}
    for call in dict.fromkeys(each.call for each in begun.requests):
        try:
            loaded[call] = await requests.load(ApprovalKey(begun.key, call).id)
        except NotFound:
            continue
    return loaded


async def _earlier(turn: TurnKey, calls: Sequence[CallView], requests: RequestReader) -> dict[str, ApprovalRequest]:
    """Return the requests of this tenant that repeated denials name."""
    denials = [call.outcome.denied for call in calls if call.outcome is not None and call.outcome.denied is not None]
    named: dict[str, ApprovalRequest] = {}
    for name in {each.approval_id for each in denials if each.source == "repeat"}:
        key = parse_approval_id(name)
        if key is None or key.turn.tenant != turn.tenant:
            continue
        try:
            named[name] = (await requests.load(name)).request
        except NotFound:
            continue
    return named


def _calls_of(view: TurnView) -> tuple[CallView, ...]:
    outcomes = () if view.result is None else view.result.calls
    return tuple(CallView(call=each.call, tool=each.tool, state=each.code, outcome=each) for each in outcomes)


def _is_of(ticket: Ticket, begun: SignedStart) -> bool:
    """False for a ticket of an earlier turn with the same id."""
    return begun.requester is None or ticket.nonce == begun.requester.nonce


def _is_answer(ticket: Ticket) -> bool:
    """Return whether a person's answer took the ticket: nothing ran."""
    return ticket.outcome is not None and ticket.outcome.code == "answered"


def _find_agreeing(request: ApprovalRequest) -> set[str]:
    """Empty until the approving people suffice."""
    if request.state not in _AGREED:
        return set()
    return {request.decided_by} | {each.subject for each in request.votes if each.verdict in _AGREED}


def _names(request: ApprovalRequest, ticket: Ticket) -> bool:
    digest = digest_of_key(ticket.key)
    return request.digest == (doubt_digest(digest, request.doubt_of) if request.doubt_of else digest)


def _stand_ins(call: str) -> Collection[str]:
    return {stand_in_id(call, number) for number in range(1, MAX_FALLBACKS + 1)} if is_call(call) else ()


def _refuse_denial(outcome: CallOutcome) -> CallOutcome:
    return CallOutcome(call=outcome.call, tool=outcome.tool, code="refused", gate="approval", value=_text(UNDENIED))


def _text(words: str) -> Content:
    return Content(inline=words)
