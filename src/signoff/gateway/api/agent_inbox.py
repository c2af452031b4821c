"""Serves requests in the protocol of LangChain's agent-inbox, in which a request is an interrupted thread.

The address of its deployment is `/v1/agent-inbox`, its key a personal token. A thread's id carries the hash of the
shown question, so that an answer to another question is stale. No header permits pages of other origins.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from signoff.approvals.card import NOTE_CHARS, ROWS
from signoff.approvals.quorum import progress
from signoff.channels.card_text import CardLimits, CardWords, card_words
from signoff.channels.envelopes import OutboundCard
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import PERMISSION_RULE
from signoff.contracts.canonical_json import same_arguments
from signoff.contracts.decision import at_least
from signoff.contracts.errors import NotFound, Refused
from signoff.contracts.limits import CARD_VALUE_CHARS, DECISION_BYTES
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import DecisionDraft
from signoff.contracts.responses import WaitingCard
from signoff.formats.json_reader import NotJson, read_json
from signoff.formats.nearest_name import quote_name
from signoff.formats.replace import replace
from signoff.formats.visible_text import whole_line
from signoff.gateway.approvals.api_attempts import ApiAttempt, decide_draft
from signoff.gateway.approvals.argument_parser import problem_words, set_values
from signoff.gateway.approvals.decision_parser import refused_receipt
from signoff.gateway.approvals.secret_masks import masked_args
from signoff.gateway.auth.authenticator import API_KEY
from signoff.gateway.auth.caller import AuthenticatedCaller, SignInNeeded, channel_of
from signoff.gateway.auth.dependencies import Deps, KeyDecider, KeyReader
from signoff.gateway.conversations import Conversations
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.errors import receipt_status
from signoff.gateway.languages import formatter_in
from signoff.gateway.transport.json_route import JsonRoute, read_body
from signoff.languages.remarks import remark_text
from signoff.store.request_reader import LoadedRequest
from signoff.texts.endings import written_receipt
from signoff.texts.formatter import Formatter
from signoff.texts.reasons import rule_expression

_MARK: Final = "~"
"""Separates a thread's approval id from the hash of its question."""
_MOST: Final = 100
_FURTHEST: Final = 900
"""The largest offset. With `_MOST`, it reads as many requests as the list of `/v1/approvals` at most."""
_NEEDED: Final = f"send a personal token as `{API_KEY}`"
_WAITING: Final = "interrupted"
_LIMITS: Final = CardLimits(value=4 * CARD_VALUE_CHARS, rows=ROWS + 1)
_MARKUP: Final = re.compile(r"[\\`*_\[\]<>#|~&!]")
_LINE_START: Final = re.compile(r"^([0-9]*)([-+=.)])")
_UNRESOLVED: Final = "`Mark as Resolved` decides nothing: answer the request, or decide it in the inbox"
_UNTOLD: Final = "the description has no room for the whole card, so decide in the inbox"

router = APIRouter(prefix="/v1/agent-inbox", route_class=JsonRoute, include_in_schema=False)


@router.post("/threads/search")
async def list_threads(request: Request, deps: Deps, caller: KeyReader) -> JSONResponse:
    """List the requests that the token's person may decide, soonest deadline first."""
    reader = _Reader.of(request, deps, _caller(caller))
    person = reader.caller.person
    body = read_body(await request.body() or b"{}")
    wanted: Mapping[str, Any] = body if isinstance(body, dict) else {}
    if wanted.get("status", _WAITING) != _WAITING:
        return JSONResponse([])
    offset, limit = _count(wanted, "offset", 0, _FURTHEST), _count(wanted, "limit", 10, _MOST)
    rights = deps.rights(person)
    cards = await deps.lists.share(
        person,
        (),
        ("agent inbox", rights, offset, limit),
        lambda: deps.requests.list_waiting(person.tenant, approvers=rights, wanted=_has_verbs, limit=offset + limit),
    )
    threads = []
    for card in cards[offset:]:
        try:
            threads.append(_thread(await Conversations(deps).load(card.id, person), reader))
        except NotFound:
            continue
    return JSONResponse(threads)


@router.get("/threads/{thread}")
async def show_thread(thread: str, request: Request, deps: Deps, caller: KeyReader) -> JSONResponse:
    """Show one request."""
    approval, _ = _named(thread)
    reader = _Reader.of(request, deps, _caller(caller))
    return JSONResponse(_thread(await Conversations(deps).load(approval, reader.caller.person), reader))


@router.post("/threads/{thread}/runs")
async def answer_thread(thread: str, request: Request, deps: Deps, caller: KeyDecider) -> JSONResponse:
    """Take the one response of a resumed thread."""
    receipt = await _answer(thread, request, deps, _caller(caller))
    return JSONResponse(_run(thread, receipt), status_code=receipt_status(receipt))


@router.post("/threads/{thread}/runs/stream")
async def stream_answer(thread: str, request: Request, deps: Deps, caller: KeyDecider) -> Response:
    """As `answer_thread`. The stream of an accepted response has one event."""
    receipt = await _answer(thread, request, deps, _caller(caller))
    if receipt.status == "refused":
        return JSONResponse(_run(thread, receipt), status_code=receipt_status(receipt))
    body = f"event: metadata\ndata: {json.dumps(_run(thread, receipt))}\n\nevent: end\ndata: null\n\n"
    return Response(body, media_type="text/event-stream")


@router.post("/threads/{thread}/state")
async def refuse_resolution(thread: str, deps: Deps, caller: KeyDecider) -> JSONResponse:
    """Refuse "Mark as Resolved", which ends a thread without a response. `ignore` is the verb of a denial."""
    approval, _ = _named(thread)
    await Conversations(deps).load(approval, _caller(caller).person)
    receipt = refused_receipt("malformed", approval, _UNRESOLVED)
    return JSONResponse(_run(thread, receipt), status_code=receipt_status(receipt))


def _caller(caller: AuthenticatedCaller | None) -> AuthenticatedCaller:
    """Not even the development profile answers without a person's token."""
    if caller is None:
        raise SignInNeeded(_NEEDED)
    return caller


def _has_verbs(card: WaitingCard) -> bool:
    """Approvers of an unknown outcome decide about the past, for which the protocol has no verbs."""
    return card.kind == "approval"


def _count(body: Mapping[str, Any], name: str, default: int, most: int) -> int:
    given = body.get(name, default)
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given <= most:
        raise Refused(f"`{name}`: 0 to {most}", code="malformed")
    return given


def _named(thread: str) -> tuple[str, str]:
    approval, _, shown = thread.partition(_MARK)
    return approval, shown


class _Reader(NamedTuple):
    """The reader of a description."""

    caller: AuthenticatedCaller
    formatter: Formatter
    public_url: str

    @classmethod
    def of(cls, request: Request, deps: GatewayDeps, caller: AuthenticatedCaller) -> "_Reader":
        return cls(caller, formatter_in(request, caller.person, deps.clock()), deps.settings.public_url)


def _thread(loaded: LoadedRequest, reader: _Reader) -> dict[str, Any]:
    request, moment = loaded.request, loaded.request.opened_at
    at = None if moment is None else moment.isoformat()
    pending = request.state == "pending" and request.kind == "approval"
    interrupts = {request.id: [{"value": _interrupt(loaded, reader)}]} if pending else {}
    return {
        "thread_id": f"{request.id}{_MARK}{request.question_hash}",
        "created_at": at,
        "updated_at": at,
        "metadata": {},
        "status": _WAITING if pending else "idle",
        "values": {},
        "interrupts": interrupts,
    }


def _interrupt(loaded: LoadedRequest, reader: _Reader) -> dict[str, Any]:
    request, words = loaded.request, _words(loaded.request, reader)
    config, args = _config(request, words, reader), masked_args(loaded.args, request.secrets)
    return {
        # Arguments are markup in these programs, except in their forms.
        "action_request": {"action": request.tool, "args": args if config["allow_edit"] else _readable(args)},
        "config": config,
        "description": _description(request, words),
    }


def _words(request: ApprovalRequest, reader: _Reader) -> CardWords:
    person, link = reader.caller.person, f"{reader.public_url}/approvals/{request.id}"
    card = OutboundCard(token="", request=request, person=person, address="", link=link)
    return card_words(card, reader.formatter, how="buttons", assurance=reader.caller.assurance, limits=_LIMITS)


def _description(request: ApprovalRequest, words: CardWords) -> str:
    """Write the words of a channel's card as Markdown, in which no value is markup."""
    says = f"{words.says_lead} “{words.says}”" if words.says else ""
    rows = "\n".join(f"- {_plain(row.text)}" for row in words.rows)
    facts = (words.note, words.asked, words.rule, _objection(request), says, words.counted, words.due)
    # These have no value of the call. An escaped address would be a wrong one.
    ways = (words.incomplete, "" if words.decides else words.how, words.open)
    first = (f"{words.heading} ({words.code})", words.effect)
    return "\n\n".join(filter(None, (*map(_plain, first), rows, *map(_plain, facts), *ways)))


def _objection(request: ApprovalRequest) -> str:
    """Return the text of the rule, which for a permission check is its objection."""
    return whole_line(rule_expression(request.rule, request.rule_text))


def _is_complete(request: ApprovalRequest, words: CardWords, language: str) -> bool:
    """Return whether the description holds every value, reason and remark of the card."""
    notes = remark_text(request.card.notes, language)
    overrides = request.rule == PERMISSION_RULE and _objection(request) != ""
    return (
        words.whole
        and (overrides or not request.override)
        and len(notes) <= NOTE_CHARS
        and whole_line(request.edited_name or request.edited_by) in words.note
    )


def _plain(line: str) -> str:
    """Escape the markup of Markdown and HTML in a line."""
    return _LINE_START.sub(r"\1\\\2", _MARKUP.sub(r"\\\g<0>", line.strip()))


def _readable(args: Mapping[str, Any]) -> dict[str, Any]:
    return {
        whole_line(name): _plain(whole_line(_text(each) or "")) if isinstance(each, str | dict | list) else each
        for name, each in args.items()
    }


def _config(request: ApprovalRequest, words: CardWords, reader: _Reader) -> dict[str, bool]:
    """Offer only verbs that can count without a page. The decision itself checks all rules."""
    plain = not (request.confirm or request.preview_required or request.thread)
    complete = _is_complete(request, words, reader.formatter.language)
    shown = complete and plain and not at_least(request.min_assurance, "present")
    answers = shown and request.answer_schema is not None and progress(request).needed == 1
    return {
        "allow_accept": shown,
        "allow_edit": shown and request.edit != "off",
        "allow_respond": answers,
        "allow_ignore": not request.require_reason,
    }


async def _answer(thread: str, request: Request, deps: GatewayDeps, caller: AuthenticatedCaller) -> Receipt:
    raw = await request.body()
    attempt = ApiAttempt(caller, None, None, raw.decode(errors="replace"), channel_of(request))
    approval, shown = _named(thread)
    reader = _Reader.of(request, deps, caller)
    draft = await _draft(approval, shown, raw, deps, reader)
    # These programs show the card alone.
    receipt = await decide_draft(deps, draft, attempt, by_card=True)
    return written_receipt(receipt, reader.formatter)


async def _draft(approval: str, shown: str, raw: bytes, deps: GatewayDeps, reader: _Reader) -> DecisionDraft | Receipt:
    """Return the decision of a response, or a receipt for an unclear one, which is never an approval."""
    if len(raw) > DECISION_BYTES:
        return refused_receipt("malformed", approval, f"a response is at most {DECISION_BYTES} bytes")
    response = _response(read_body(raw))
    if response is None:
        return refused_receipt("malformed", approval, "`command.resume`: one response with `type` and `args`")
    try:
        loaded = await Conversations(deps).load(approval, reader.caller.person)
    except NotFound as error:
        return refused_receipt("unknown", approval, error.message)
    if loaded.request.kind != "approval":
        return refused_receipt("not_allowed", approval, "decide about an unknown outcome in the inbox")
    if not shown:
        return refused_receipt("malformed", approval, "the thread's id lacks the hash of its question")
    complete = _is_complete(loaded.request, _words(loaded.request, reader), reader.formatter.language)
    if not complete and response[0] in ("accept", "edit", "response"):
        return refused_receipt("malformed", approval, _UNTOLD)
    base = {"approval_id": approval, "revision": loaded.request.revision, "question_hash": shown}
    kind, args = response
    match kind:
        case "accept":
            return DecisionDraft(verdict="approved", **base)
        case "ignore":
            return DecisionDraft(verdict="denied", **base)
        case "response" if isinstance(args, str):
            return DecisionDraft(verdict="answered", answer=_typed(args, loaded.request), **base)
        case "edit":
            edited = _edited(args, loaded, deps)
            if isinstance(edited, str):
                return refused_receipt("malformed", approval, edited)
            return DecisionDraft(verdict="approved", edited_args=edited, **base)
    return refused_receipt("malformed", approval, "`type`: `accept`, `edit`, `response` or `ignore`")


def _response(body: Any) -> tuple[str, Any] | None:
    command = body.get("command") if isinstance(body, dict) else None
    given = command.get("resume") if isinstance(command, dict) else None
    only = given[0] if isinstance(given, list) and len(given) == 1 else given
    if not isinstance(only, dict) or not isinstance(only.get("type"), str):
        return None
    return only["type"], only.get("args")


def _typed(words: str, request: ApprovalRequest) -> Any:
    """Read the text as JSON, unless the tool takes a text."""
    if (request.answer_schema or {}).get("type") == "string":
        return words
    try:
        return read_json(words.encode())
    except NotJson:
        return words


def _edited(args: Any, loaded: LoadedRequest, deps: GatewayDeps) -> dict[str, Any] | str:
    """Return the edited arguments, or the problem. The program sends values as texts."""
    request = loaded.request
    given: Mapping[str, Any] = args if isinstance(args, dict) else {}
    action, sent = given.get("action"), given.get("args")
    if action != request.tool or not isinstance(sent, dict):
        return "`args`: the tool as `action`, and its `args`"
    before: Mapping[str, Any] = masked_args(loaded.args, request.secrets)
    if missing := sorted(before.keys() - sent.keys()):
        return f"`args`: an edit sends every argument, also {quote_name(missing[0])}"
    settings = {
        name: _text(value) for name, value in sent.items() if name not in before or not _is_same(value, before[name])
    }
    tool = deps.catalog.find_definition(request.tool, request.definition)
    try:
        typed = set_values(loaded.args, settings, None if tool is None else tool.schema, request.secrets)
    except (NotFound, Refused) as error:
        return error.message
    if not typed.good or typed.args is None:
        return problem_words(typed)
    return dict(typed.args) if typed.changed else "an edit changes an argument"


def _is_same(sent: Any, before: Any) -> bool:
    if not isinstance(sent, str) or isinstance(before, str):
        return same_arguments(sent, before)
    try:
        return same_arguments(read_json(sent.encode()), before)
    except NotJson:
        return False


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) or value is None else json.dumps(value, ensure_ascii=False)


def _run(thread: str, receipt: Receipt) -> dict[str, Any]:
    status = "error" if receipt.status == "refused" else "success"
    shown = replace(receipt, remarks=()).model_dump(mode="json")
    return {"run_id": thread, "thread_id": thread, "status": status, "receipt": shown, "message": receipt.message}
