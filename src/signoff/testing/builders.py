"""Builds contracts for tests: complete, with defaults for the fields that a test does not set."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from signoff.approvals.deadlines import open_request
from signoff.approvals.digest import digest_in_context
from signoff.contracts.activity_messages import RunTask
from signoff.contracts.approval import ApprovalRequest, Card, Question
from signoff.contracts.call import CallContext
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.grant import Grant, GrantScope
from signoff.contracts.person import Person, Principal
from signoff.formats.nearest_name import did_you_mean
from signoff.registry.registry import definition_hash
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext

_CALL = "c1.1"
_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def a_request(*, opened: datetime | None = None, **fields: Any) -> ApprovalRequest:
    """Return a request of `guest` to pay, in session `s` and turn `t` of the tenant `main`, at revision 1.

    `fields` belong to `ApprovalRequest`. `id` follows from tenant, session, turn and call. With `opened`, it waits
    since then, with the deadlines of its terms.
    """
    place = {"tenant": "main", "session": "s", "turn": "t", "call": _CALL}
    place |= {name: fields[name] for name in place if name in fields}
    given: dict[str, Any] = {
        **place,
        "id": ".".join(place.values()),
        "code": "K7Q2FM",
        "digest": "d",
        "tool": "pay",
        "args": Content(inline={}),
        "card": Card(effect="Pay"),
        "requester": Principal(user="guest", name="Guest"),
    }
    request = ApprovalRequest(**given | fields)
    return request if opened is None else open_request(request, opened)


def a_question(**fields: Any) -> Question:
    """Return the gates' question about `guest`'s call to pay, in session `s` and turn `t` of `main`.

    `fields` belong to `Question`. `id` follows from tenant, session, turn and call.
    """
    place = {"tenant": "main", "session": "s", "turn": "t", "call": _CALL}
    place |= {name: fields[name] for name in place if name in fields}
    given: dict[str, Any] = {
        **place,
        "id": ".".join(place.values()),
        "requester": Principal(user="guest", name="Guest"),
        "tool": "pay",
        "definition": "d",
        "args": Content(inline={}),
        "digest": "d",
    }
    return Question(**given | fields)


def a_grant(**fields: Any) -> Grant:
    """Return `ana`'s remembered approval for one more call to pay, in any session. `fields` are `Grant`'s."""
    given: dict[str, Any] = {
        "id": "g",
        "verdict": "approved",
        "like": GrantScope(tenant="main", tool="pay", definition="d"),
        "people": ("ana",),
        "approval_id": f"main.s.t.{_CALL}",
        "requester": "guest",
        "created_at": _NOON,
        "expires_at": _NOON,
        "uses": 1,
        "uses_left": 1,
    }
    return Grant(**given | fields)


def a_decision(request: ApprovalRequest | None = None, **fields: Any) -> Decision:
    """Return an approval of `request`, by default of `a_request()`, without an author. `fields` are `Decision`'s."""
    about = a_request() if request is None else request
    given: dict[str, Any] = {"approval_id": about.id, "revision": about.revision, "verdict": "approved"}
    if about.question_hash:
        given["question_hash"] = about.question_hash
    return Decision(**given | fields)


def a_person(person: str = "ana", **fields: Any) -> Person:
    """Return the directory entry of `person`, by default with the right to approve. `fields` are `Person`'s."""
    return Person(**{"id": person, "roles": ("approvers",)} | fields)


def a_run_task(tool: Tool | None = None, args: Any = None, **fields: Any) -> RunTask:
    """Return the task to run `guest`'s call by rule, bound to `tool` and `args`. `fields` are `RunTask`'s.

    Raises `TypeError` for an unknown field.
    """
    _check_fields(RunTask, fields)
    args = {} if args is None else args
    given: dict[str, Any] = {
        "ctx": a_call_context(),
        "tool": "pay" if tool is None else tool.name,
        "call": _CALL,
        "args": Content(inline=args),
        "digest": "d",
    } | fields
    if tool is not None and "digest" not in fields:
        about = {"call": given["call"], "tool": tool.name, "definition": definition_hash(tool)}
        given["digest"] = digest_in_context(given["ctx"], **about, args=args)
    return RunTask(**given)


def a_call_context(**fields: Any) -> CallContext:
    """Return the context, `ctx` of policies, of a call of the actor `desk` for `guest`. `fields` are its own.

    Raises `TypeError` for an unknown field.
    """
    _check_fields(CallContext, fields, "; your own fields go into `extra`")
    given: dict[str, Any] = {
        "actor": "desk",
        "session": "s",
        "turn": "t",
        "tenant": "main",
        "user": Principal(user="guest", name="Guest"),
    }
    return CallContext(**given | fields)


def a_tool_context(**fields: Any) -> ToolContext:
    """Return the context of a tool of the actor `desk` for a call for `guest`. `fields` are its own."""
    user = Principal(user="guest", name="Guest")
    given: dict[str, Any] = {
        "actor_name": "desk",
        "session_id": "s",
        "turn_id": "t",
        "call_id": _CALL,
        "tenant_id": "main",
        "user_id": user.user,
        "user": user,
        "idempotency_key": "k",
    }
    return ToolContext(**given | fields)


def _check_fields(model: type[FrozenModel], fields: Mapping[str, Any], advice: str = "") -> None:
    unknown = min(fields.keys() - model.model_fields.keys(), default="")
    if unknown:
        near = did_you_mean(unknown, model.model_fields)
        raise TypeError(f"a {model.__name__} has no field `{unknown}`{near}{advice}")
