"""Masks values that must never leave the gateway: secret arguments, and digests that help to guess them."""

import re
from collections.abc import Collection
from typing import Any, Final

from signoff.approvals.redaction import HIDDEN, hide, redact_arguments, redact_value, secret_values
from signoff.contracts.approval import ApprovalRequest, Vote
from signoff.contracts.content import Content
from signoff.contracts.errors import Refused
from signoff.contracts.message import CallPart, Message, content_of
from signoff.contracts.turn import CallView, TurnResult, TurnView
from signoff.formats.replace import replace
from signoff.keys.signature_form import unsigned_principal
from signoff.registry.catalog import Catalog

_MASK: Final = re.compile(r"hidden(, [0-9]+ characters?)?")


def mask_text(value: Any) -> str:
    """Return `hidden`, with the length of a text."""
    if not isinstance(value, str):
        return "hidden"
    return f"hidden, {len(value)} character{'' if len(value) == 1 else 's'}"


def masked_args(args: Any, secrets: Collection[str]) -> Any:
    """Mask the named values, and replace repeats in other arguments by `[hidden]`.

    Nested names are dotted. Lists are traversed by index.
    """
    return hide(redact_arguments(args, secrets, secret_values(args, secrets)), secrets, mask_text)


def unmasked_args(edited: Any, args: Any, secrets: Collection[str]) -> Any:
    """Replace the masks in `edited`, an edit of `masked_args(args, secrets)`.

    Raises `Refused` (`malformed`) for a mask without a certain value, for example in a changed list.
    """
    if not secrets:
        return edited
    return _Unmasked(frozenset(secrets), secret_values(args, secrets)).of(edited, args, "")


def masked_content(content: Content, secrets: Collection[str]) -> Content:
    """Mask inline values. With secrets, empties the preview of stored ones."""
    if not secrets:
        return content
    if content.blob is not None:
        return Content(blob=replace(content.blob, preview="", sha256="", seal=""))
    return Content(inline=masked_args(content.inline, secrets))


def masked_request(request: ApprovalRequest) -> ApprovalRequest:
    """With secrets, leaves out the digest too, which helps to guess them."""
    # Without the requester's signature, the question's hash cannot be recomputed to guess hidden values.
    requester = unsigned_principal(request.requester)
    votes = tuple(_masked_vote(vote) for vote in request.votes)
    if not request.secrets:
        return replace(request, votes=votes, requester=requester)
    args = masked_content(request.args, request.secrets)
    return replace(request, args=args, digest="", votes=votes, requester=requester)


def masked_view(view: TurnView, catalog: Catalog) -> TurnView:
    texts = _secret_texts(view, catalog)
    view = replace(
        view,
        messages=tuple(_quiet_message(message, texts) for message in view.messages),
        result=_quiet_result(view.result, texts),
    )
    calls = tuple(_masked_call(call, catalog) for call in view.calls)
    by_call = {call.call: call for call in view.calls}
    messages = tuple(_masked_message(message, by_call, catalog) for message in view.messages)
    # Its nonce and signature would help to guess the hashed message. The name of the key is public.
    requester = replace(unsigned_principal(view.requester), key_id=view.requester.key_id)
    return replace(view, calls=calls, messages=messages, requester=requester)


def _secret_texts(view: TurnView, catalog: Catalog) -> frozenset[str]:
    """Covers only values that the turn's history holds inline."""
    by_call = {call.call: call.approval for call in view.calls}
    values: set[str] = set()
    for part in (part for message in view.messages for part in message.parts if isinstance(part, CallPart)):
        values |= secret_values(part.args.inline, _secrets(part.tool, by_call.get(part.call), catalog) or ())
    return frozenset(values)


def _quiet_message(message: Message, texts: Collection[str]) -> Message:
    """The author may have written the message before the values were known as secret."""
    if not texts:
        return message
    parts = []
    for part in message.parts:
        field, content = content_of(part)
        keep = isinstance(part, CallPart)
        parts.append(part if keep else replace(part, **{field: _quiet_content(content, texts)}))
    return replace(message, parts=tuple(parts))


def _quiet_result(result: TurnResult | None, texts: Collection[str]) -> TurnResult | None:
    if result is None or not texts:
        return result
    parts = tuple(replace(each, content=_quiet_content(each.content, texts)) for each in result.parts)
    return replace(result, parts=parts)


def _quiet_content(content: Content, texts: Collection[str]) -> Content:
    return content if content.blob is not None else Content(inline=redact_value(content.inline, texts))


def _masked_vote(vote: Vote) -> Vote:
    return replace(vote, decision=replace(vote.decision, edited_args=None, signature=""))


def _masked_call(call: CallView, catalog: Catalog) -> CallView:
    changes: dict[str, Any] = {}
    if call.approval is not None:
        changes["approval"] = masked_request(call.approval)
    if _secrets(call.tool, call.approval, catalog) != ():
        changes["args_preview"] = ""
    return replace(call, **changes)


def _masked_message(message: Message, calls: dict[str, CallView], catalog: Catalog) -> Message:
    parts = tuple(_masked_part(part, calls, catalog) if isinstance(part, CallPart) else part for part in message.parts)
    return replace(message, parts=parts, provider=None)


def _masked_part(part: CallPart, calls: dict[str, CallView], catalog: Catalog) -> CallPart:
    view = calls.get(part.call)
    secrets = _secrets(part.tool, view.approval if view is not None else None, catalog)
    if secrets is None:
        return replace(part, args=Content(inline="hidden"))
    return replace(part, args=masked_content(part.args, secrets))


def _secrets(tool: str, request: ApprovalRequest | None, catalog: Catalog) -> tuple[str, ...] | None:
    """`None` if the catalog lacks the tool: the secret arguments are then unknown."""
    declared = catalog.tools_named(tool)
    of_request = request.secrets if request is not None else ()
    if not declared:
        return of_request if request is not None else (None if tool != "respond" else ())
    # Several tools may have this name: hide the secrets of all.
    return tuple(sorted({*of_request, *(name for each in declared for name in each.masked_arguments)}))


_ABSENT: Final = object()


class _Unmasked:
    """Restores the values behind masks. `texts` are the values of secret arguments, hidden in all places."""

    def __init__(self, secrets: frozenset[str], texts: frozenset[str]) -> None:
        self._secrets = secrets
        self._texts = texts

    def of(self, edited: Any, value: Any, path: str) -> Any:
        """`value` is the earlier value at `path`."""
        if isinstance(edited, dict):
            old = value if isinstance(value, dict) else {}
            return {key: self._keep(item, old.get(key, _ABSENT), _below(path, key)) for key, item in edited.items()}
        if isinstance(edited, list):
            if value is not _ABSENT and edited == self._show(value, path):
                return value
            # After items were moved, the order of hidden values is unknown.
            return [self.of(item, _ABSENT, path) for item in edited]
        if isinstance(edited, str) and HIDDEN in edited and edited != value:
            return self._find_repeated(edited, value, path)
        return edited

    def _keep(self, item: Any, value: Any, name: str) -> Any:
        if name not in self._secrets:
            return self.of(item, value, name)
        if value is not _ABSENT and item == mask_text(value):
            return value
        if isinstance(item, str) and _MASK.fullmatch(item):
            raise _unknown(name)
        return item

    def _find_repeated(self, edited: str, value: Any, path: str) -> Any:
        # If the text around the mark was changed, the editor may not want the secret there.
        if isinstance(value, str) and edited == self._show(value, path):
            return value
        raise _unknown(path)

    def _show(self, value: Any, path: str) -> Any:
        return hide(redact_arguments(value, self._secrets, self._texts, path), self._secrets, mask_text, path)


def _unknown(name: str) -> Refused:
    return Refused(f"`{name}`: the hidden value for this mask is unknown; type the value", code="malformed")


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
