"""The client of a gateway: start turns, follow them, and decide requests."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from signoff.client.address import find_gateway, find_token, meant_installation
from signoff.client.transport import Transport
from signoff.client.turn_handle import TurnHandle
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.audit import CloudEvent, EventList, FailedEvent, FailedEventList, RetryResult
from signoff.contracts.clock import system_clock
from signoff.contracts.decision import GrantRequest
from signoff.contracts.errors import NotFound, Refused
from signoff.contracts.grant import Freeze, FreezeResult, Grant
from signoff.contracts.ids import TurnKey, is_id, parse_approval_id, parse_workflow_id, uuid7
from signoff.contracts.message import APPROVAL_RESPONSE
from signoff.contracts.names import VERSION
from signoff.contracts.person import Absence
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import AbsenceBody, DecisionDraft
from signoff.contracts.responses import (
    AbsenceList,
    ApprovalRequestPart,
    EditPreview,
    EffectPreview,
    Health,
    Insights,
    PastRequestList,
    SessionMessageReply,
    SessionRow,
    TurnRow,
    TurnStarted,
    WaitingCard,
)
from signoff.contracts.session_messages import SessionView, late_id, late_words
from signoff.contracts.turn import TurnView
from signoff.formats.nearest_name import quote_name

T = TypeVar("T", bound=BaseModel)
_WAIT_SECONDS: Final = 30
"""Longest wait of one request for events."""
_LEAST_WAIT_SECONDS: Final = 1.0
"""Shortest interval between requests that the gateway answers at once, beyond its limit of waits."""


class Client:
    """Client of a gateway's HTTP API, with the rights of its token.

    Without a token, in the development profile, `user`, `by` and `approver` name the acting person. With a token they
    default to its person, and no other is accepted.

    Every method raises `ServerUnavailable` if no gateway answers, `NotFound` for unknown or inaccessible things, and
    `Refused` with the gateway's message. Decisions never raise for being late or forbidden: each returns a `Receipt`.
    """

    def __init__(self, url: str | None = None, token: str | None = None, *, agent: str = "signoff-client") -> None:
        """Use the gateway at `url` with a personal `token`. Omitted values are found as in `connect`.

        `agent` is the program's name in `User-Agent`, which grants nothing. Raises `ConfigError` for an invalid address
        or token, and for a token on plain HTTP.
        """
        secret = find_token(token)
        self._transport = Transport(
            find_gateway(url, token=secret),
            secret,
            f"{agent}/{VERSION}",
            installation=meant_installation(url, token=secret),
        )

    @classmethod
    async def connect(cls, url: str | None = None, token: str | None = None) -> Self:
        """Make a client, and check with one request that the gateway answers.

        Does not wait for a gateway: raises `ServerUnavailable` at once.

        `url` defaults to SIGNOFF_PUBLIC_URL, or to SIGNOFF_HOST and SIGNOFF_PORT, or to their entries in
        `signoff.toml`. Further defaults are the `signoff dev` in this directory, then http://127.0.0.1:8300. `token`
        defaults to SIGNOFF_TOKEN.

        The gateway of another project refuses a program without an address and a token. With a token, `signoff.toml`
        may only name this machine. Raises the errors of the class, and `ConfigError`.
        """
        client = cls(url, token)
        try:
            await client.get(Health, "/healthz")
        except BaseException:
            await client.close()
            raise
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def url(self) -> str:
        """Return the gateway's address."""
        return self._transport.url

    async def close(self) -> None:
        """Close the connections. Client and turn handles cannot be used afterwards."""
        await self._transport.close()

    async def get(self, shape: type[T], path: str, **params: Any) -> T:
        """Read any other route of the API, such as `/v1/audit/...`, and return a `shape`.

        `params` are the query's. Empty ones are left out.
        """
        return await self._transport.call(shape, "GET", path, params=_drop_empty(params))

    async def start(
        self,
        text: str,
        *,
        actor: str = "",
        user: str = "",
        session: str = "",
        turn: str = "",
        route: str = "",
        step: str = "",
        transient: Sequence[str] = (),
        dry_run: bool = False,
        trace: bool = False,
        context: Mapping[str, Any] | None = None,
    ) -> TurnHandle:
        """Start a turn of `actor` for `user`, and return its handle. The turn is stored.

        `actor` may be omitted if there is only one. The same `turn` with the same text is the same turn. Raises
        `Conflict` for the same `turn` with other content.

        A turn of a `session` is its next message: it reads the earlier conversation, and the session remembers it. The
        message is then stored, and its turn may begin later.

        `context` holds fields that the manifest declares. `transient` names tools that take precedence in this turn. A
        `dry_run` judges calls without approvers and without running them. With `trace`, the audit log records the tool
        that each name resolves to.
        """
        if session:
            options: dict[str, Any] = {"route": route, "step": step, "dry_run": dry_run, "trace": trace}
            options |= {"actor": actor, "user": user, "id": turn, "transient": transient, "context": context}
            reply = await self.say(text, session=session, **options)
            return TurnHandle(self._transport, TurnKey(reply.tenant, reply.session, reply.turn), joins=True)
        body: dict[str, Any] = {"text": text, "actor": actor, "user": user, "turn": turn}
        body |= {"route": route, "step": step, "dry_run": dry_run, "context": dict(context or {})}
        body |= {"transient": list(transient), "trace": trace}
        started = await self._transport.call(TurnStarted, "POST", "/v1/turns", json=_drop_empty(body))
        return TurnHandle(self._transport, TurnKey(started.tenant, started.session, started.turn), started.links)

    async def turn(self, name: str) -> TurnHandle:
        """Read a turn from the gateway, and return a handle to follow it.

        `name` is any name that `view` accepts. Raises `NotFound`.
        """
        view = await self.view(name)
        return TurnHandle(self._transport, TurnKey(view.tenant, view.session, view.turn))

    async def view(self, name: str) -> TurnView:
        """Return a turn's current view, with masked secrets.

        `name` is `<tenant>.<session>.<turn>`, a workflow id, the turn's own id, or the beginning of that.
        """
        named = parse_workflow_id(name.strip())
        path = f"/v1/turns/{_quote_part('.'.join(named) if named is not None else name)}"
        return await self._transport.call(TurnView, "GET", path)

    async def turns(self, *, state: str = "", actor: str = "", limit: int = 50) -> list[TurnRow]:
        """List the turns that you may read, newest first, at most `limit` (up to 500)."""
        return await self._transport.list_rows(TurnRow, "turns", state=state, actor=actor, limit=limit)

    async def say(
        self,
        text: str,
        *,
        session: str = "",
        actor: str = "",
        user: str = "",
        id: str = "",
        route: str = "",
        step: str = "",
        transient: Sequence[str] = (),
        dry_run: bool = False,
        trace: bool = False,
        context: Mapping[str, Any] | None = None,
    ) -> SessionMessageReply:
        """Send a message to a session, and return its ids. The answer follows later.

        Without `session`, or with a new name, it starts a session. A session that starts on a `route` stays there;
        later messages need not name it. The same `id` is the same message. The status is `pending` if all workers are
        down. `start(session=...)` returns the turn instead, and explains the other fields.
        """
        body: dict[str, Any] = {"text": text, "actor": actor, "user": user, "id": id, "route": route, "step": step}
        body |= {"transient": list(transient), "dry_run": dry_run, "trace": trace, "context": dict(context or {})}
        path = f"/v1/sessions/{_quote_part(session or uuid7(system_clock()))}/messages"
        return await self._transport.call(SessionMessageReply, "POST", path, json=_drop_empty(body))

    async def add_result(self, event_id: str, text: str, *, id: str = "") -> SessionMessageReply:
        """Pass a late result to a turn of a session. A repeat for the same call adds nothing.

        `event_id` is the id of a call that handed off its work, or a turn's `<tenant>.<session>.<turn>`. For a turn, or
        with an `id`, only a repeat with the same `id` adds nothing. Raises `Conflict` for a repeat with another text,
        and `NotFound` for any other `event_id`.
        """
        approval = parse_approval_id(event_id)
        turn = approval.turn if approval is not None else _read_turn(event_id)
        if approval is not None:
            id, text = id or late_id(event_id), late_words(event_id, text)
        path = f"/v1/sessions/{_quote_part(f'{turn.tenant}.{turn.session}')}/results"
        return await self._transport.call(
            SessionMessageReply, "POST", path, json=_drop_empty({"turn": turn.turn, "text": text, "id": id})
        )

    async def session(self, name: str) -> SessionView:
        """Return a session with its turns, oldest first, and its unanswered messages."""
        return await self._transport.call(SessionView, "GET", f"/v1/sessions/{_quote_part(name)}")

    async def sessions(self, *, limit: int = 50) -> list[SessionRow]:
        """List the running sessions that you may read, newest first.

        At most `limit` (up to 500).
        """
        return await self._transport.list_rows(SessionRow, "sessions", limit=limit)

    async def inbox(self, approver: str = "", *, everyone: bool = False, limit: int = 100) -> list[WaitingCard]:
        """List pending requests in short form, soonest deadline first.

        `approver` is a person, or an approver entry such as `role:approvers`. It defaults to the token's person, or
        without a token to the built-in approver. `everyone` lists all requests that the caller may read.
        """
        entry = ":" in approver
        who = {"approver": approver} if entry else {"as": approver} if approver else {"mine": "true"}
        who = {} if everyone else who
        return await self._transport.list_rows(WaitingCard, "approvals", limit=limit, **who)

    async def pending(self, approver: str = "") -> AsyncGenerator[ApprovalRequest]:
        """Yield the pending requests of `inbox` in full, at most 100, then end.

        They keep the order of `inbox`. Requests that are settled in the meantime are left out. `TurnHandle.pending`
        waits for further ones.
        """
        for card in await self.inbox(approver):
            try:
                request = await self.request(card.id)
            except NotFound:
                continue
            # An approver may have decided it in the meantime.
            if request.state == "pending":
                yield request

    async def request(self, name: str) -> ApprovalRequest:
        """Return a request, pending or settled, by approval id or short code, with all arguments and masked secrets."""
        return await self._transport.call(ApprovalRequest, "GET", f"/v1/approvals/{_quote_part(name)}")

    async def approve(
        self,
        request: ApprovalRequest | str,
        *,
        by: str = "",
        reason: str = "",
        edited_args: Mapping[str, Any] | None = None,
        remember: GrantRequest | None = None,
        confirm: str = "",
        seen: str | None = None,
        thread: str | None = None,
        delivery: str = "",
    ) -> Receipt:
        """Approve a request. Returns a receipt, also if the approval does not count.

        `edited_args` replaces all its arguments. If the outcome of a call is unknown, approving confirms that it did
        not happen, and lets it run again.

        A name means the current request, and counts only if its card shows every value. A request that was read in full
        counts as seen, with its `thread` of questions and answers. `confirm` is a value of the card, for policies that
        require it typed. Raises `NotFound` for an unknown name.
        """
        given = {"edited_args": edited_args, "confirm": confirm, "remember": remember, "seen": seen, "thread": thread}
        return await self._decide(request, by, verdict="approved", reason=reason, delivery_id=delivery, **given)

    async def deny(
        self,
        request: ApprovalRequest | str,
        *,
        by: str = "",
        reason: str = "",
        remember: GrantRequest | None = None,
        delivery: str = "",
    ) -> Receipt:
        """Deny a request. Returns a receipt, also if the denial does not count.

        The agent reads the reason. If the outcome of a call is unknown, this gives it up. Raises `NotFound` for an
        unknown name.
        """
        given = {"reason": reason, "remember": remember, "delivery_id": delivery}
        return await self._decide(request, by, verdict="denied", **given)

    async def answer(
        self,
        request: ApprovalRequest | str,
        answer: Any,
        *,
        by: str = "",
        reason: str = "",
        seen: str | None = None,
        thread: str | None = None,
        delivery: str = "",
    ) -> Receipt:
        """Answer a request in place of its call, which then does not run. Returns a receipt.

        `answer` fits `answer_schema` of the request. The agent reads it as a person's words. Otherwise as `approve`.
        """
        given = {"answer": answer, "reason": reason, "seen": seen, "thread": thread, "delivery_id": delivery}
        return await self._decide(request, by, verdict="answered", **given)

    async def happened(
        self, request: ApprovalRequest | str, *, by: str = "", reason: str = "", result: str = "", delivery: str = ""
    ) -> Receipt:
        """Confirm that a call of unknown outcome happened, with its result. Returns a receipt.

        Counts only for requests of the kind `in_doubt`.
        """
        given = {"reason": reason, "result": result, "delivery_id": delivery}
        return await self._decide(request, by, verdict="happened", **given)

    async def respond(
        self,
        part: ApprovalRequestPart,
        verdict: Literal["approved", "denied", "happened"],
        *,
        by: str = "",
        reason: str = "",
        delivery: str = "",
    ) -> Receipt:
        """Answer an `approval-request` part of a turn in its session. Returns a receipt.

        The answer is an `approval-response` part. Raises `Refused` for an answer that cannot count, such as one to a
        part that is not whole.
        """
        draft = _draft(
            verdict=verdict,
            approval_id=part.approval_id,
            revision=part.revision,
            question_hash=part.question_hash,
            reason=reason,
            delivery_id=delivery,
        )
        answer = {"type": APPROVAL_RESPONSE, **draft.model_dump(mode="json", exclude_defaults=True)}
        path = part.where.session
        reply = await self._transport.call(
            SessionMessageReply, "POST", path, json=_drop_empty({"parts": [answer], "user": by})
        )
        return reply.receipts[0]

    async def preview(
        self, request: ApprovalRequest | str, settings: Mapping[str, str | None] | None = None, *, text: str = ""
    ) -> EditPreview:
        """Return a request as it would be with other arguments. Changes nothing.

        `args` of the result are for `edited_args` of `approve`. `settings` maps dotted names to texts, which the tool's
        schema converts, or to `None` for null. `text` is all arguments as JSON. Raises `Refused` (`malformed`) for
        values that do not fit, `NotFound` for an unknown name.
        """
        name = request if isinstance(request, str) else request.id
        body = _drop_empty({"set": dict(settings or {}), "text": text})
        return await self._transport.call(EditPreview, "POST", f"/v1/approvals/{_quote_part(name)}/preview", json=body)

    async def effect(self, request: ApprovalRequest | str) -> EffectPreview:
        """Return the preview of the effect of a request's call, for people who may decide it.

        Raises `NotFound`, and `Refused` (`not_allowed`) for other people.
        """
        name = request if isinstance(request, str) else request.id
        return await self._transport.call(EffectPreview, "GET", f"/v1/approvals/{_quote_part(name)}/effect")

    async def withdraw(self, request: ApprovalRequest | str, *, by: str = "", reason: str = "") -> Receipt:
        """Withdraw a pending request. Its call ends as denied. Returns a receipt.

        For the requester, approvers and the role `admin`. It takes back no vote. An unknown request gives a receipt
        with the code `unknown`.
        """
        name = request if isinstance(request, str) else request.id
        return await self._transport.receipt(
            f"/v1/approvals/{_quote_part(name)}/withdraw", _drop_empty({"reason": reason}), by
        )

    async def question(self, request: ApprovalRequest | str, text: str, *, by: str = "") -> Receipt:
        """Ask the agent about its waiting request. Returns a receipt.

        For approvers, at most three times. The agent's answer appears in `messages` of the request. Approvals of the
        request as read before do not count.
        """
        name = request if isinstance(request, str) else request.id
        return await self._transport.receipt(f"/v1/approvals/{_quote_part(name)}/messages", {"text": text}, by)

    async def reassign(
        self, request: ApprovalRequest | str, to: str, *, by: str = "", reason: str = "", delivery: str = ""
    ) -> Receipt:
        """Hand a pending request on to another person who may decide it. Returns a receipt.

        You may decide it no longer, and the other person cannot hand it on again.
        """
        return await self._assign("reassign", request, by, to=to, reason=reason, delivery_id=delivery)

    async def add_approver(
        self, request: ApprovalRequest | str, to: str, *, by: str = "", reason: str = "", delivery: str = ""
    ) -> Receipt:
        """Require the approval of one more person who may decide a pending request. Returns a receipt."""
        return await self._assign("add-approver", request, by, to=to, reason=reason, delivery_id=delivery)

    async def grants(self, *, every: bool = False, tenant: str = "") -> list[Grant]:
        """List remembered answers, newest first. `every` includes expired, used up and revoked ones."""
        return await self._transport.list_rows(Grant, "grants", every=every, tenant=tenant)

    async def decisions(
        self,
        text: str = "",
        *,
        scope: Literal["all", "mine", "team"] = "all",
        by: str = "",
        tool: str = "",
        actor: str = "",
        person: str = "",
        state: str = "",
        channel: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
        after: str = "",
        limit: int = 50,
    ) -> PastRequestList:
        """Search the past requests that you may read, newest first, at most `limit` (up to 500).

        Their cards have each word of `text`. `scope` restricts them to your own answers or your roles' requests.
        `after` is the `next` of the previous page.
        """
        times = {"since": since and since.isoformat(), "until": until and until.isoformat()}
        named = {"tool": tool, "actor": actor, "person": person, "state": state, "channel": channel}
        paging = {"as": by, "after": after, "limit": limit}
        return await self.get(PastRequestList, "/v1/decisions", text=text, scope=scope, **named, **times, **paging)

    async def insights(self, days: Literal[7, 30, 90] = 30, *, by: str = "", tenant: str = "") -> Insights:
        """Return your own figures of the last `days`, or all figures with the role `admin` or `auditor`."""
        return await self.get(Insights, "/v1/insights", days=days, tenant=tenant, **{"as": by})

    async def revoke(self, grant: str, *, by: str = "", tenant: str = "") -> Grant:
        """Revoke a remembered answer by its id, and return it.

        For its authors and the role `admin`. Raises `Refused` (`not_allowed`), `NotFound`.
        """
        path, params = f"/v1/grants/{_quote_part(grant)}", _drop_empty({"as": by, "tenant": tenant})
        return await self._transport.call(Grant, "DELETE", path, params=params, json={})

    async def absences(self, *, tenant: str = "") -> list[Absence]:
        """List the people who are or will be away, the soonest return first."""
        return await self._transport.list_rows(Absence, "absences", tenant=tenant)

    async def go_away(
        self, until: datetime, *, since: datetime | None = None, tools: Sequence[str] = (), to: str = "", by: str = ""
    ) -> Absence:
        """Say that you are away. Your cards wait for your return if enough others may decide.

        Replaces your earlier absence. `to` is a person to ask instead: it gives them no right.
        """
        body = AbsenceBody(since=since, until=until, tools=tuple(tools), to=to)
        sent = body.model_dump(mode="json", exclude_defaults=True)
        return await self._transport.call(Absence, "POST", "/v1/absences", json=sent, params=_drop_empty({"as": by}))

    async def come_back(self, *, by: str = "") -> list[Absence]:
        """Say that you are back. Returns the others' absences. Raises `NotFound` if you were not away."""
        params = _drop_empty({"as": by})
        found = await self._transport.call(AbsenceList, "DELETE", "/v1/absences", params=params, json={})
        return list(found.absences)

    async def freezes(self, *, tenant: str = "") -> list[Freeze]:
        """Return the freeze of a tenant, yours by default. [] if it is not frozen."""
        return await self._transport.list_rows(Freeze, "freezes", tenant=tenant)

    async def freeze(self, reason: str, *, tenant: str = "", by: str = "") -> FreezeResult:
        """Freeze a tenant and withdraw its pending requests. Needs the role `admin`.

        Every call is then denied; running ones finish. `swept.waiting` of the result names requests that could not be
        withdrawn in time; they do not run if approved. After `ServerUnavailable` the freeze may be in force: repeat the
        call.
        """
        body = _drop_empty({"tenant": tenant, "reason": reason})
        return await self._transport.call(
            FreezeResult, "POST", "/v1/freezes", json=body, params=_drop_empty({"as": by})
        )

    async def unfreeze(self, tenant: str, *, by: str = "") -> Freeze:
        """End the freeze of a tenant, and return it. Denied calls stay denied.

        Needs the role `admin`. Raises `NotFound` if the tenant is not frozen.
        """
        path = f"/v1/freezes/{_quote_part(tenant)}"
        return await self._transport.call(Freeze, "DELETE", path, params=_drop_empty({"as": by}), json={})

    async def events(
        self, *, after: int = 0, limit: int = 100, wait: float = 0, turn: str = "", tenant: str = ""
    ) -> EventList:
        """Return the events after a number, optionally of one turn. Waits up to `wait` seconds for one, at most 30.

        Raises `Refused` (`gone`) if later events have been removed.
        """
        params = {"after": after, "limit": limit, "wait": wait, "turn": turn, "tenant": tenant}
        return await self._transport.call(EventList, "GET", "/v1/events", params=_drop_empty(params))

    async def follow_events(self, *, after: int = 0, turn: str = "", tenant: str = "") -> AsyncGenerator[CloudEvent]:
        """Yield the events after a number without end, by default from the oldest one.

        Does not reconnect: raises `ServerUnavailable` if the gateway stops, and otherwise like `events`. Continue with
        `after` = the `number` of your last event.
        """
        clock = asyncio.get_running_loop().time
        while True:
            began, page = clock(), None
            try:
                page = await self.events(after=after, wait=_WAIT_SECONDS, turn=turn, tenant=tenant)
            except Refused as error:
                # Other waits use the same token: the gateway then answers at once, once a second.
                if error.code != "streams":
                    raise
            if page is not None:
                for event in page.events:
                    yield event
                after = page.next
            if page is None or not page.events:
                await asyncio.sleep(max(0.0, began + _LEAST_WAIT_SECONDS - clock()))

    async def failed_events(self, *, tenant: str = "") -> list[FailedEvent]:
        """List the events that were given up for subscriptions, oldest first."""
        params = _drop_empty({"tenant": tenant})
        return list((await self._transport.call(FailedEventList, "GET", "/v1/events/failed", params=params)).failed)

    async def retry_events(self, subscription: str = "", *, by: str = "", tenant: str = "") -> RetryResult:
        """Retry given-up events, all or of one subscription. `retried` is their number.

        Needs the role `admin`.
        """
        params = _drop_empty({"subscription": subscription, "as": by, "tenant": tenant})
        return await self._transport.call(RetryResult, "POST", "/v1/events/failed/retry", params=params, json={})

    async def _assign(self, route: str, named: ApprovalRequest | str, by: str, **given: str) -> Receipt:
        request = await self.request(named) if isinstance(named, str) else named
        shown = {"revision": request.revision, "question_hash": request.question_hash}
        path = f"/v1/approvals/{_quote_part(request.id)}/{route}"
        return await self._transport.receipt(path, _drop_empty({**given, **shown}), by)

    async def _decide(self, named: ApprovalRequest | str, by: str, **given: Any) -> Receipt:
        """The decision counts for no later question."""
        request = await self.request(named) if isinstance(named, str) else named
        if given["verdict"] in ("approved", "answered") and not isinstance(named, str):
            # A full request holds every value and message. A name shows none.
            given = given | {name: getattr(request, name) for name in ("seen", "thread") if given.get(name) is None}
        body = {name: value for name, value in given.items() if value is not None}
        draft = _draft(revision=request.revision, question_hash=request.question_hash, **body)
        return await self._transport.receipt(
            f"/v1/approvals/{_quote_part(request.id)}/decide", draft.model_dump(mode="json", exclude_defaults=True), by
        )


def _draft(**given: Any) -> DecisionDraft:
    """Raise `Refused` (`malformed`) for a decision that no gateway would accept."""
    try:
        return DecisionDraft(**given)
    except ValidationError as error:
        problem = error.errors()[0]
        named = ".".join(map(str, problem["loc"]))
        raise Refused(f"`{named}`: {problem['msg'].removeprefix('Value error, ')}", code="malformed") from None


def _drop_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _read_turn(name: str) -> TurnKey:
    parts = name.split(".")
    if len(parts) != len(TurnKey._fields) or not all(map(is_id, parts)):
        raise NotFound(f"{quote_name(name)} is not the id of an event or a turn")
    return TurnKey(*parts)


def _quote_part(name: str) -> str:
    """Raise `NotFound` for a name that would change the path."""
    plain = name.strip()
    if plain in ("", ".", ".."):
        raise NotFound(f"there is nothing with the name {quote_name(plain)}")
    return quote(plain, safe="")
