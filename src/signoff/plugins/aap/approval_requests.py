"""Handles approval requests: each is an external call. Nothing is decided here."""

import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from signoff.calls import AgentCalls, AgentIdentity, CallBody, CallHandle, OutcomeBody, make_use_id
from signoff.contracts.canonical_json import same_arguments, sha256_hex
from signoff.contracts.errors import BadRequest, Conflict, NotFound, Refused, ServerUnavailable
from signoff.contracts.ids import is_id
from signoff.contracts.limits import CALL_SECONDS, REASON_CHARS
from signoff.formats.durations import seconds
from signoff.formats.nearest_name import quote_name
from signoff.plugins.aap.approval_request import ApprovalRequestView, GivenRequest
from signoff.plugins.aap.problems import ApprovalProblem, ProblemCode
from signoff.plugins.aap.request_body import CreateBody, OutcomeReport

_NAMES: Final = uuid.UUID("5b0f7f5e-5d3c-5a7e-9c1b-2f0a4f6f1e11")
"""The namespace of the ids of requests."""
_CONFLICT: Final = 409
_UNUSABLE: Final[dict[str, ProblemCode]] = {"used": "already_consumed", "lapsed": "approval_expired"}
_HANDED_OUT: Final = ("used", "ended")
_NOTED: Final[dict[ProblemCode, str]] = {
    "not_found": "unknown",
    "idempotency_conflict": "conflict",
    "run_by_signoff": "not_allowed",
}
_CONFLICT_WORDS: Final = "this key was used before, for another request; choose another one"


@dataclass(frozen=True)
class ApprovalRequests:
    """The approval requests of one agent in the name of one person.

    Methods raise `ApprovalProblem` for a rejected request, and `Unavailable` if a service is unavailable.
    """

    calls: AgentCalls
    asker: AgentIdentity

    async def create(self, body: CreateBody, key: str) -> tuple[ApprovalRequestView, bool]:
        """The same key names one call. Return whether it is new."""
        request_id = str(uuid.uuid5(_NAMES, self._digest("approval request", key)))
        row, is_new = self._digest("request", request_id), False
        found = await self.calls.kept(row)
        if found is None:
            found, is_new = await self.calls.keep(row, (await self._begin(body, request_id)).dump())
        given = GivenRequest.load(request_id, found)
        if sha256_hex(given.body) != sha256_hex(body.as_sent):
            raise await self._refusal("idempotency_conflict", _CONFLICT_WORDS, body.tool_name)
        return await self._view(given, await self._call(given)), is_new

    async def show(self, request_id: str, wait: float = 0.0) -> ApprovalRequestView:
        """Wait up to `wait` seconds for a pending request."""
        given, call = await self._load(request_id)
        return await self._view(given, call, wait)

    async def cancel(self, request_id: str) -> ApprovalRequestView:
        given, call = await self._load(request_id)
        found = await self._view(given, call)
        if found.status == "pending":
            try:
                await self.calls.withdraw(call)
            except BadRequest as error:
                raise ApprovalProblem("already_terminal", error.message) from None
            found = await self._view(given, call)
        if found.status == "pending":
            raise ServerUnavailable("it was withdrawn, and its turn has not heard of that yet; ask again")
        if found.status != "cancelled":
            raise ApprovalProblem("already_terminal", f"the request is {found.status}")
        return found

    async def consume(self, request_id: str, key: str) -> ApprovalRequestView:
        """Use the approval once. The same key repeats the same use."""
        given, call = await self._load(request_id)
        found, use = await self._view(given, call), f"{request_id}/{key}"
        # Check before the use: an edited approval must not be used up here.
        if found.status != "approved":
            raise ApprovalProblem("not_approved", f"the request is {found.status}")
        if found.ticket is None and found.usable_until is not None and self.calls.now() >= found.usable_until:
            raise ApprovalProblem("approval_expired", "the approval was not used in time")
        if found.ticket is None or found.answer.state != "ended" or found.ticket.owner != make_use_id(use):
            try:
                used = await self.calls.use(call, use)
            except BadRequest as error:
                if error.status != _CONFLICT:
                    raise
                raise ApprovalProblem(_UNUSABLE.get(error.code, "not_approved"), error.message) from None
            if not same_arguments(used.answer.args, given.body["arguments"]):
                raise ApprovalProblem("not_approved", "the permitted call is not the requested one")
            found = await self._view(given, call)
        return found

    async def report(self, request_id: str, report: OutcomeReport) -> ApprovalRequestView:
        """The first report is final."""
        given, call = await self._load(request_id)
        if (await self._view(given, call)).status != "approved":
            raise ApprovalProblem("not_consumed", "only a call whose approval was consumed has an outcome")
        code = "ok" if report.status == "succeeded" else "execution_failed"
        try:
            await self.calls.report(call, OutcomeBody(code=code, result=report.note))
        except Conflict as error:
            raise ApprovalProblem("outcome_conflict", error.message) from None
        except BadRequest as error:
            if error.code != "not_used":
                raise
            raise ApprovalProblem("not_consumed", error.message) from None
        return await self._view(given, call)

    async def _begin(self, body: CreateBody, request_id: str) -> GivenRequest:
        """Find the call that was edited to exactly these arguments, or propose a call."""
        terms = self.calls.terms(body.tool_name)
        if not terms.is_external:
            # If Signoff and the agent both ran it, one approval would have two effects.
            words = f"{quote_name(body.tool_name)} is run by Signoff itself; propose it as an external call"
            raise await self._refusal("run_by_signoff", words, body.tool_name)
        window = min(seconds(body.timeout), CALL_SECONDS)
        edited = await self._find_edited(body, request_id)
        call = edited or await self._propose(body, request_id, window)
        # Its deadline counts from its own start, which an earlier attempt may have made.
        begun = call.begun_at if edited is None else None
        begun = begun or self.calls.now()
        usable = begun + timedelta(seconds=terms.usable_seconds)
        deadline = begun + timedelta(seconds=min(window, terms.asked_seconds))
        return GivenRequest(request_id, body.as_sent, begun, deadline, usable, call.id)

    async def _propose(self, body: CreateBody, request_id: str, window: float) -> CallHandle:
        proposal = CallBody(
            tool=body.tool_name,
            args=body.arguments,
            agent=self.asker.agent,
            user=self.asker.user,
            says=body.agent_reasoning[:REASON_CHARS],
            ask_within=window,
        )
        try:
            return await self.calls.propose(proposal, key=f"approval-request:{request_id}")
        except Conflict:
            raise await self._refusal("idempotency_conflict", _CONFLICT_WORDS, body.tool_name) from None

    async def _find_edited(self, body: CreateBody, request_id: str) -> CallHandle | None:
        """Return the call that was approved with exactly these arguments, once for each approval."""
        named = await self.calls.kept(self._edited_key(body.tool_name, body.arguments))
        if not named:
            return None
        call = await self.calls.wait(await self.calls.load(named, self.asker.agent), 0)
        answer, asked = call.answer, await self.calls.question(call)
        if answer.state != "permitted" or answer.expires_at is None or answer.expires_at <= self.calls.now():
            return None
        if asked is None or not same_arguments(asked.args, body.arguments):
            return None
        # Of several requests with these arguments, one gets the approval. The others need a new one.
        taken = await self.calls.keep(self._digest("edited request", call.id), request_id)
        return call if taken.value == request_id else None

    async def _view(self, given: GivenRequest, call: CallHandle, wait: float = 0.0) -> ApprovalRequestView:
        call = await self.calls.wait(call, wait)
        answer, asked = call.answer, await self.calls.question(call)
        use = await self.calls.permit_use(call) if answer.state in _HANDED_OUT else None
        found = ApprovalRequestView(given, answer, asked, use)
        if found.approval is not None and not found.is_as_proposed and answer.state == "permitted":
            await self.calls.replace(self._edited_key(answer.tool, dict(found.approval.args)), call.id)
        return found

    async def _load(self, request_id: str) -> tuple[GivenRequest, CallHandle]:
        known, words = is_id(request_id), f"there is no request {quote_name(request_id)} of this agent"
        found = await self.calls.kept(self._digest("request", request_id)) if known else None
        if found is None:
            raise await self._refusal("not_found", words)
        given = GivenRequest.load(request_id, found)
        try:
            return given, await self._call(given)
        except NotFound:
            # Its turn is older than the server's retention.
            raise await self._refusal("not_found", words) from None

    async def _call(self, given: GivenRequest) -> CallHandle:
        return await self.calls.load(given.call, self.asker.agent)

    async def _refusal(self, code: ProblemCode, words: str, tool: str = "") -> ApprovalProblem:
        noted = Refused(words, code=_NOTED[code])
        await self.calls.note_refusal(noted, tool)
        return ApprovalProblem(code, words)

    def _edited_key(self, tool: str, args: dict[str, Any]) -> str:
        return self._digest("edited", tool, args)

    def _digest(self, *values: Any) -> str:
        """The key belongs to this agent alone, in the name of this person."""
        return sha256_hex(["approval requests", *self.asker, *values])
