"""What must never leave the gateway: arguments declared secret, and digests from which they could be guessed."""

import re
from collections.abc import Collection
from typing import Any, Final

from signoff.contracts.approval import ApprovalRequest, Vote
from signoff.contracts.content import Content
from signoff.contracts.errors import Refused
from signoff.contracts.message import CallPart, Message
from signoff.contracts.signed import unsigned_principal
from signoff.contracts.turn import CallView, TurnView
from signoff.registry.catalog import Catalog
from signoff.registry.secret_names import hide

_MASK: Final = re.compile(r"hidden(, [0-9]+ characters?)?")


def hidden(value: Any) -> str:
    """What stands in the place of a secret value: `hidden`, with the length of a text."""
    if not isinstance(value, str):
        return "hidden"
    return f"hidden, {len(value)} character{'' if len(value) == 1 else 's'}"


def masked_args(args: Any, secrets: Collection[str]) -> Any:
    """`args` with the values of the named ones replaced; nested names are dotted. Lists are passed through by index."""
    return hide(args, secrets, hidden)


def unmasked_args(edited: Any, args: Any, secrets: Collection[str]) -> Any:
    """`edited`, what somebody made of `masked_args(args, secrets)`: where a mask still stands, the value behind it.

    Raises `Refused` (`malformed`) for a mask behind which no value is, or not for certain: in a list that was changed.
    """
    return _unmasked(edited, args, frozenset(secrets), "") if secrets else edited


def masked_content(content: Content, secrets: Collection[str]) -> Content:
    """Arguments as content: inline ones masked, the preview of stored ones emptied when there are secrets."""
    if not secrets:
        return content
    if content.blob is not None:
        return Content(blob=content.blob.model_copy(update={"preview": "", "sha256": ""}))
    return Content(inline=masked_args(content.inline, secrets))


def masked_request(request: ApprovalRequest) -> ApprovalRequest:
    """A request as it may be shown. With secrets its digest is left out too: the card's mark stands for it."""
    # Without its signature nobody can recompute the question's hash to guess what is hidden in its arguments.
    requester = unsigned_principal(request.requester)
    votes = tuple(_masked_vote(vote) for vote in request.votes)
    if not request.secrets:
        return request.model_copy(update={"votes": votes, "requester": requester})
    args = masked_content(request.args, request.secrets)
    return request.model_copy(update={"args": args, "digest": "", "votes": votes, "requester": requester})


def masked_view(view: TurnView, catalog: Catalog) -> TurnView:
    """A turn as it may be shown."""
    calls = tuple(_masked_call(call, catalog) for call in view.calls)
    by_call = {call.call: call for call in view.calls}
    messages = tuple(_masked_message(message, by_call, catalog) for message in view.messages)
    return view.model_copy(update={"calls": calls, "messages": messages})


def _masked_vote(vote: Vote) -> Vote:
    changes = {"edited_args": None, "signature": ""}
    return vote.model_copy(update={"decision": vote.decision.model_copy(update=changes)})


def _masked_call(call: CallView, catalog: Catalog) -> CallView:
    changes: dict[str, Any] = {}
    if call.approval is not None:
        changes["approval"] = masked_request(call.approval)
    if _secrets(call.tool, call.approval, catalog) != ():
        changes["args_preview"] = ""
    return call.model_copy(update=changes)


def _masked_message(message: Message, calls: dict[str, CallView], catalog: Catalog) -> Message:
    parts = tuple(_masked_part(part, calls, catalog) if isinstance(part, CallPart) else part for part in message.parts)
    return message.model_copy(update={"parts": parts, "provider": None})


def _masked_part(part: CallPart, calls: dict[str, CallView], catalog: Catalog) -> CallPart:
    view = calls.get(part.call)
    secrets = _secrets(part.tool, view.approval if view is not None else None, catalog)
    if secrets is None:
        return part.model_copy(update={"args": Content(inline="hidden")})
    return part.model_copy(update={"args": masked_content(part.args, secrets)})


def _secrets(tool: str, request: ApprovalRequest | None, catalog: Catalog) -> tuple[str, ...] | None:
    """The secret arguments of a call; None when nobody can say, because the tool is not in the catalog."""
    declared = catalog.named(tool)
    asked = request.secrets if request is not None else ()
    if not declared:
        return asked if request is not None else (None if tool != "respond" else ())
    # Which of several was meant is not known here, so what any of them hides is hidden.
    return tuple(sorted({*asked, *(name for each in declared for name in each.masked_arguments)}))


_ABSENT: Final = object()


def _unmasked(edited: Any, value: Any, secrets: frozenset[str], path: str) -> Any:
    if isinstance(edited, dict):
        old = value if isinstance(value, dict) else {}
        return {key: _kept(item, old.get(key, _ABSENT), secrets, _below(path, key)) for key, item in edited.items()}
    if isinstance(edited, list):
        if value is not _ABSENT and edited == hide(value, secrets, hidden, path):
            return value
        # Which of the hidden values stands where is not known once items were moved.
        return [_unmasked(item, _ABSENT, secrets, path) for item in edited]
    return edited


def _kept(item: Any, value: Any, secrets: frozenset[str], name: str) -> Any:
    if name not in secrets:
        return _unmasked(item, value, secrets, name)
    if value is not _ABSENT and item == hidden(value):
        return value
    if isinstance(item, str) and _MASK.fullmatch(item):
        raise Refused(f"`{name}`: which hidden value is meant is not known any more; write it anew", code="malformed")
    return item


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
