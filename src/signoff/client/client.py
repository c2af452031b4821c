"""The client of a gateway: start turns, follow them, and decide what waits, from any Python program."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
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
from signoff.contracts.list_rows import SessionRow, TurnRow, WaitingCard
from signoff.contracts.message import APPROVAL_RESPONSE
from signoff.contracts.names import VERSION
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import DecisionDraft
from signoff.contracts.responses import ApprovalRequestPart, EditPreview, Health, SessionMessageReply, TurnStarted
from signoff.contracts.session_messages import SessionView, late_id, late_words
from signoff.contracts.turn import TurnView
from signoff.formats.nearest_name import quote_name

T = TypeVar("T", bound=BaseModel)
_WAIT_SECONDS: Final = 30
"""How long one answer with events is waited for."""
_LEAST_WAIT_SECONDS: Final = 1.0
"""Seconds between two requests that a gateway answers at once, as it does beyond its limit of waits."""


class Client:
    """Speaks to a gateway's API over HTTP, as whose token it is.

    In the development profile nobody has a token: `user`, `by` and `approver` say who acts. With one they may be left
    out, and nobody else can be named. Every method raises `ServerUnavailable` where no gateway answers, `NotFound` for
    what is not there or not for this person, and `Refused` with what the gateway says. Answers to requests are never
    errors: each has a `Receipt`, also where it came too late or was not allowed.
    """

    def __init__(self, url: str | None = None, token: str | None = None, *, agent: str = "signoff-client") -> None:
        """Speaks to the gateway at `url` with a personal `token`; what is left out is found as `connect` finds it.

        `agent` is the name of the program in `User-Agent`, which grants nothing.

        Raises `ConfigError` for an address or a token that cannot be one, and for a token on plain HTTP.
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
        """Makes a client, once a gateway has answered.

        Without `url` it is SIGNOFF_PUBLIC_URL, or made of SIGNOFF_HOST and SIGNOFF_PORT, or the same in `signoff.toml`,
        or the `signoff dev` that runs in this folder, else http://127.0.0.1:8300. Without `token` it is SIGNOFF_TOKEN.
        The gateway of another project refuses a program that named no address and no token.
        With a token `signoff.toml` names this machine alone. Raises as the class says, and `ConfigError`.
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
        """The gateway's address."""
        return self._transport.url

    async def close(self) -> None:
        """Closes all connections."""
        await self._transport.close()

    async def get(self, shape: type[T], path: str, **params: Any) -> T:
        """Reads any other route of the API, such as `/v1/audit/...`."""
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
        """Asks `actor` for something on behalf of `user`; when this returns the turn is safe.

        `actor` may be left out where there is one. The same `turn` again, with the same words, is the same turn.
        A turn of a `session` is its next message: it knows what was said before, and the session remembers it.
        `context` holds fields that the manifest declares; `transient` names tools that this turn has before all others;
        a `dry_run` judges calls, asks nobody and runs nothing; with `trace` the record tells which tool a name means.
        """
        if session:
            given: dict[str, Any] = {"route": route, "step": step, "dry_run": dry_run, "trace": trace}
            given |= {"actor": actor, "user": user, "id": turn, "transient": transient, "context": context}
            said = await self.say(text, session=session, **given)
            return TurnHandle(self._transport, TurnKey(said.tenant, said.session, said.turn), joins=True)
        body: dict[str, Any] = {"text": text, "actor": actor, "user": user, "turn": turn}
        body |= {"route": route, "step": step, "dry_run": dry_run, "context": dict(context or {})}
        body |= {"transient": list(transient), "trace": trace}
        started = await self._transport.call(TurnStarted, "POST", "/v1/turns", json=_drop_empty(body))
        return TurnHandle(self._transport, TurnKey(started.tenant, started.session, started.turn), started.links)

    async def turn(self, name: str) -> TurnHandle:
        """Finds a turn to follow, by any name that `view` knows."""
        view = await self.view(name)
        return TurnHandle(self._transport, TurnKey(view.tenant, view.session, view.turn))

    async def view(self, name: str) -> TurnView:
        """Returns a turn as it stands, secrets masked.

        `name` is `<tenant>.<session>.<turn>`, a workflow id, or the turn's own id or the beginning of that.
        """
        named = parse_workflow_id(name.strip())
        path = f"/v1/turns/{_quote_part('.'.join(named) if named is not None else name)}"
        return await self._transport.call(TurnView, "GET", path)

    async def turns(self, *, state: str = "", actor: str = "", limit: int = 50) -> list[TurnRow]:
        """Lists turns in this state and of this actor, where named, newest first."""
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
        """Says something in a session; without `session`, or with a new name, a session begins with it.

        A session that is begun on a `route` stays there: later messages need not name it. The same `id` again is the
        same message. The other fields are those of `start`.
        """
        body: dict[str, Any] = {"text": text, "actor": actor, "user": user, "id": id, "route": route, "step": step}
        body |= {"transient": list(transient), "dry_run": dry_run, "trace": trace, "context": dict(context or {})}
        path = f"/v1/sessions/{_quote_part(session or uuid7(system_clock()))}/messages"
        return await self._transport.call(SessionMessageReply, "POST", path, json=_drop_empty(body))

    async def add_result(self, event_id: str, text: str, *, id: str = "") -> SessionMessageReply:
        """Hands a late result to a turn of a session, once.

        `event_id` is the id under which a tool handed its work off, or a turn's `<tenant>.<session>.<turn>`; a result
        for a turn counts once for each `id`. Raises `NotFound` for any other id.
        """
        handed = parse_approval_id(event_id)
        turn = handed.turn if handed is not None else _read_turn(event_id)
        if handed is not None:
            id, text = id or late_id(event_id), late_words(event_id, text)
        path = f"/v1/sessions/{_quote_part(f'{turn.tenant}.{turn.session}')}/results"
        return await self._transport.call(
            SessionMessageReply, "POST", path, json=_drop_empty({"turn": turn.turn, "text": text, "id": id})
        )

    async def session(self, name: str) -> SessionView:
        """Returns one session as it stands: its turns, oldest first."""
        return await self._transport.call(SessionView, "GET", f"/v1/sessions/{_quote_part(name)}")

    async def sessions(self, *, limit: int = 50) -> list[SessionRow]:
        """Lists sessions that go on, newest first."""
        return await self._transport.list_rows(SessionRow, "sessions", limit=limit)

    async def inbox(self, approver: str = "", *, everyone: bool = False, limit: int = 100) -> list[WaitingCard]:
        """Lists what waits, soonest deadline first, in short.

        `approver` is a person, or an entry of policies such as `role:approvers`; left out, whoever the token is of, and
        without a token the built-in approver. `everyone`: all that one may read, whoever is asked.
        """
        entry = ":" in approver
        who = {"approver": approver} if entry else {"as": approver} if approver else {"mine": "true"}
        who = {} if everyone else who
        return await self._transport.list_rows(WaitingCard, "approvals", limit=limit, **who)

    async def pending(self, approver: str = "") -> AsyncGenerator[ApprovalRequest]:
        """Yields each request that waits now, whole, in the order of `inbox`."""
        for card in await self.inbox(approver):
            try:
                request = await self.request(card.id)
            except NotFound:
                continue
            # Somebody may have answered meanwhile.
            if request.state == "pending":
                yield request

    async def request(self, name: str) -> ApprovalRequest:
        """Returns a request, waiting or settled, by approval id or short code, with all arguments; secrets masked."""
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
        delivery: str = "",
    ) -> Receipt:
        """Approves a request as it was read, or with `edited_args` in the place of all its arguments.

        Of a call in doubt it says that it did not happen and may run. A name means the request as it stands now, which
        is taken only where its card gives every value; one that was read whole was seen whole. `confirm` is a value of
        the card, for policies that want it typed again.
        """
        given = {"edited_args": edited_args, "confirm": confirm, "remember": remember, "seen": seen}
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
        """Denies a request; the agent reads the reason. Of a call in doubt: give it up."""
        given = {"reason": reason, "remember": remember, "delivery_id": delivery}
        return await self._decide(request, by, verdict="denied", **given)

    async def happened(
        self, request: ApprovalRequest | str, *, by: str = "", reason: str = "", result: str = "", delivery: str = ""
    ) -> Receipt:
        """Says that a call in doubt happened, and what came of it."""
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
        """Answers an `approval-request` part of a turn or session by an `approval-response` part in its session.

        Raises `Refused` for an answer that counts for nothing, such as one to a part that is not whole.
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
        """Tries other arguments, as `edited_args` of `approve` would ask it; nothing is changed.

        `settings` are texts by dotted name, each read by the tool's schema, and None for null; `text` is all arguments
        as JSON.
        Raises `Refused` (`malformed`) for what does not fit, `NotFound` for a name that is none.
        """
        name = request if isinstance(request, str) else request.id
        body = _drop_empty({"set": dict(settings or {}), "text": text})
        return await self._transport.call(EditPreview, "POST", f"/v1/approvals/{_quote_part(name)}/preview", json=body)

    async def withdraw(self, request: ApprovalRequest | str, *, by: str = "", reason: str = "") -> Receipt:
        """Withdraws a request, so that its call does not run."""
        name = request if isinstance(request, str) else request.id
        return await self._transport.receipt(
            f"/v1/approvals/{_quote_part(name)}/withdraw", _drop_empty({"reason": reason}), by
        )

    async def grants(self, *, every: bool = False, tenant: str = "") -> list[Grant]:
        """Lists answers that are remembered, newest first; `every`: also what is over, used up or taken back."""
        return await self._transport.list_rows(Grant, "grants", every=every, tenant=tenant)

    async def revoke(self, grant: str, *, by: str = "", tenant: str = "") -> Grant:
        """Takes a remembered answer back: people are asked again."""
        path, params = f"/v1/grants/{_quote_part(grant)}", _drop_empty({"as": by, "tenant": tenant})
        return await self._transport.call(Grant, "DELETE", path, params=params, json={})

    async def freezes(self, *, tenant: str = "") -> list[Freeze]:
        """Returns the freeze of the tenant, if there is one."""
        return await self._transport.list_rows(Freeze, "freezes", tenant=tenant)

    async def freeze(self, reason: str, *, tenant: str = "", by: str = "") -> FreezeResult:
        """Denies everything in a tenant until it is thawed, and withdraws what waits."""
        body = _drop_empty({"tenant": tenant, "reason": reason})
        return await self._transport.call(
            FreezeResult, "POST", "/v1/freezes", json=body, params=_drop_empty({"as": by})
        )

    async def thaw(self, tenant: str, *, by: str = "") -> Freeze:
        """Lifts a freeze; what was denied meanwhile stays denied."""
        path = f"/v1/freezes/{_quote_part(tenant)}"
        return await self._transport.call(Freeze, "DELETE", path, params=_drop_empty({"as": by}), json={})

    async def events(
        self, *, after: int = 0, limit: int = 100, wait: float = 0, turn: str = "", tenant: str = ""
    ) -> EventList:
        """Returns the events after a number, of one turn where named; waits `wait` seconds for one, at most 30.

        Raises `Refused` (`gone`) where some after it are not kept any more.
        """
        params = {"after": after, "limit": limit, "wait": wait, "turn": turn, "tenant": tenant}
        return await self._transport.call(EventList, "GET", "/v1/events", params=_drop_empty(params))

    async def follow_events(self, *, after: int = 0, turn: str = "", tenant: str = "") -> AsyncGenerator[CloudEvent]:
        """Yields the events after a number as they happen, without an end. Raises as `events`."""
        clock = asyncio.get_running_loop().time
        while True:
            began, found = clock(), None
            try:
                found = await self.events(after=after, wait=_WAIT_SECONDS, turn=turn, tenant=tenant)
            except Refused as error:
                # Others wait with the same token: the gateway answers at once, and once a second.
                if error.code != "streams":
                    raise
            if found is not None:
                for event in found.events:
                    yield event
                after = found.next
            if found is None or not found.events:
                await asyncio.sleep(max(0.0, began + _LEAST_WAIT_SECONDS - clock()))

    async def failed_events(self, *, tenant: str = "") -> list[FailedEvent]:
        """Lists the events that did not arrive at subscriptions and were given up, oldest first."""
        params = _drop_empty({"tenant": tenant})
        return list((await self._transport.call(FailedEventList, "GET", "/v1/events/failed", params=params)).failed)

    async def retry_events(self, subscription: str = "", *, by: str = "", tenant: str = "") -> RetryResult:
        """Has what was given up sent again, all of it or that of one subscription; takes the role `admin`."""
        params = _drop_empty({"subscription": subscription, "as": by, "tenant": tenant})
        return await self._transport.call(RetryResult, "POST", "/v1/events/failed/retry", params=params, json={})

    async def _decide(self, named: ApprovalRequest | str, by: str, **given: Any) -> Receipt:
        """Answers the question that was read: whatever is asked by the time it arrives, it counts for that alone."""
        request = await self.request(named) if isinstance(named, str) else named
        if given.get("seen") is None and given["verdict"] == "approved" and not isinstance(named, str):
            # Whoever has the request has every value; who names one has read none of it.
            given["seen"] = request.seen
        body = {name: value for name, value in given.items() if value is not None}
        draft = _draft(revision=request.revision, question_hash=request.question_hash, **body)
        return await self._transport.receipt(
            f"/v1/approvals/{_quote_part(request.id)}/decide", draft.model_dump(mode="json", exclude_defaults=True), by
        )


def _draft(**given: Any) -> DecisionDraft:
    """Raises `Refused` (`malformed`) for an answer that no gateway would take."""
    try:
        return DecisionDraft(**given)
    except ValidationError as error:
        problem = error.errors()[0]
        named = ".".join(map(str, problem["loc"]))
        raise Refused(f"`{named}`: {problem['msg'].removeprefix('Value error, ')}", code="malformed") from None


def _drop_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `fields` without those that say nothing."""
    return {name: value for name, value in fields.items() if value}


def _read_turn(name: str) -> TurnKey:
    parts = name.split(".")
    if len(parts) != len(TurnKey._fields) or not all(map(is_id, parts)):
        raise NotFound(f"{quote_name(name)} is not the id of an event or a turn")
    return TurnKey(*parts)


def _quote_part(name: str) -> str:
    """Returns a name as a part of a path. Raises `NotFound` for what would be another path."""
    plain = name.strip()
    if plain in ("", ".", ".."):
        raise NotFound(f"there is nothing of the name {quote_name(plain)}")
    return quote(plain, safe="")
