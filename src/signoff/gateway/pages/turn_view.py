"""Makes a conversation's page: texts, and each call as a line at its place."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, TypeAlias

from signoff.audit.log import AuditLog
from signoff.contracts.content import Content
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.message import RESPONSE, CallPart, Message, TextPart
from signoff.contracts.names import RESPOND
from signoff.contracts.person import Person
from signoff.contracts.session_messages import SessionView
from signoff.contracts.turn import ModelRetry, TurnView
from signoff.formats.visible_text import MISSING
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.pages.call_view import CallLine, call_line
from signoff.gateway.read_access import reads_record
from signoff.languages.catalogue import text
from signoff.store.content_store import load_in

TEXT_CHARS: Final = 20_000
_LIVE: Final = ("running", "suspended")

CallTraces: TypeAlias = Mapping[tuple[str, str], str]
"""Maps a turn's stream and a call to the tool that the call's name resolves to."""


@dataclass(frozen=True)
class TranscriptEntry:
    """One entry of a conversation: a text or a call. `key` stays the same while a turn runs."""

    key: str
    who: str
    words: str = ""
    line: CallLine | None = None
    speaker: str = ""


@dataclass(frozen=True)
class Transcript:
    """A whole conversation.

    `live` is true while more may come. `error` is the turn's error. `retry` is set while the model is called again.
    `place` is the proven route and step, such as `checkout/pay`.
    """

    entries: tuple[TranscriptEntry, ...]
    state: str
    live: bool
    error: str
    version: str
    retry: ModelRetry | None = None
    place: str = ""


async def talk_of(deps: GatewayDeps, view: TurnView, language: str, reader: Person) -> Transcript:
    """Loads long texts from the store. Raises `StoreUnavailable`."""
    traces = await call_traces(deps, [_key_of(view)], reader)
    entries = await transcript_entries(deps, view, language, traces=traces)
    live = view.result is None
    error = view.result.error.message if view.result is not None and view.result.error is not None else ""
    state = view.state if not live or view.state in _LIVE else "running"
    retry, place = view.model_retry, place_of(view)
    version = hashlib.sha256(repr((entries, state, error, retry, place)).encode()).hexdigest()[:16]
    return Transcript(tuple(entries), state, live, error, version, retry, place)


def place_of(view: TurnView | SessionView) -> str:
    """Return for example `checkout/pay`; "" outside all routes."""
    return "/".join(filter(None, (view.route, view.step)))


async def call_traces(deps: GatewayDeps, turns: Iterable[TurnKey], reader: Person) -> CallTraces:
    """Return the traces by stream and call.

    Empty without access to the audit log: traces show hidden tools. Raises `StoreUnavailable`.
    """
    if not reads_record(deps, reader):
        return {}
    traces: dict[tuple[str, str], str] = {}
    # The last trace of a call is the one of its run.
    for record in await AuditLog(deps.store).of_kinds(["trace"], [key.workflow_id for key in turns]):
        facts = json.loads(record.data)
        traces[record.stream, str(facts.get("call"))] = str(facts.get("line"))
    return traces


async def transcript_entries(
    deps: GatewayDeps,
    view: TurnView,
    language: str,
    *,
    after: int = 0,
    prefix: str = "",
    traces: CallTraces = MappingProxyType({}),
) -> list[TranscriptEntry]:
    """Leave out the first `after` messages.

    `prefix` makes the keys of different turns differ. Raises `StoreUnavailable`.
    """
    entries: list[TranscriptEntry] = []
    lines = call_lines(deps, view, language)
    shown: dict[str, list[CallLine]] = {}
    for call in view.calls:
        line = replace(lines[call.call], trace=traces.get((_key_of(view).workflow_id, call.call), ""))
        shown.setdefault(call.stands_for or call.call, []).append(line)
    actor = deps.catalog.actors.get(view.actor)
    elsewhere = actor is not None and actor.external is not None
    for number, message in list(enumerate(view.messages))[after:]:
        # Leave out the summary of an external call, which lists use: it would look like a person's words.
        if not (elsewhere and message.role == "user"):
            entries += await _entries(deps, number, message, shown, SessionKey(view.tenant, view.session))
    entries += await _answer(deps, view, entries)
    requester = view.requester.name or view.requester.user
    speakers = {"person": requester, "agent": view.actor}
    # Late results have no author: the requester's name would make them look like their words.
    speakers["result"] = text("talk.late", language)
    return [replace(entry, key=prefix + entry.key, speaker=speakers.get(entry.who, "")) for entry in entries]


async def message_words(deps: GatewayDeps, content: Message | Content, place: SessionKey) -> str:
    """Loads long texts from the store. Raises `StoreUnavailable`."""
    if isinstance(content, Content):
        return await _words(deps, content, place)
    return " ".join([await _words(deps, part.text, place) for part in content.parts if isinstance(part, TextPart)])


def call_lines(deps: GatewayDeps, view: TurnView, language: str) -> dict[str, CallLine]:
    """Return lines by call id. A fallback shows the arguments of the call that it replaces."""
    parts = {part.call: part for message in view.messages for part in message.parts if isinstance(part, CallPart)}
    stood = {call.stands_for: call.tool for call in view.calls if call.stands_for}
    return {
        call.call: call_line(
            call,
            parts.get(call.stands_for or call.call),
            deps.catalog,
            deps.people,
            language,
            stood=stood.get(call.call, ""),
            actor=view.actor,
        )
        for call in view.calls
    }


def _key_of(view: TurnView) -> TurnKey:
    return TurnKey(view.tenant, view.session, view.turn)


async def _entries(
    deps: GatewayDeps, number: int, message: Message, shown: Mapping[str, Sequence[CallLine]], place: SessionKey
) -> list[TranscriptEntry]:
    if message.role == "tool":
        return []
    who = "agent" if message.role != "user" else "result" if message.late else "person"
    entries: list[TranscriptEntry] = []
    for index, part in enumerate(message.parts):
        key = f"m{number}-{index}"
        if isinstance(part, TextPart):
            words = await _words(deps, part.text, place)
            entries += [TranscriptEntry(key, who, words)] if words.strip() else []
        elif isinstance(part, CallPart) and part.tool != RESPOND:
            # Fallbacks follow their call.
            tried = shown.get(part.call, ())
            entries += [
                TranscriptEntry(f"{key}-{at}" if at else key, "call", line=line) for at, line in enumerate(tried)
            ]
    return entries


async def _answer(deps: GatewayDeps, view: TurnView, before: list[TranscriptEntry]) -> list[TranscriptEntry]:
    if view.result is None:
        return []
    entries: list[TranscriptEntry] = []
    spoken = [part for part in view.result.parts if part.type == RESPONSE]
    for index, part in enumerate(spoken):
        words = await _words(deps, part.content, SessionKey(view.tenant, view.session))
        # A model that answered in plain text has already sent these words.
        if words.strip() and not (before and before[-1].who == "agent" and before[-1].words == words):
            entries.append(TranscriptEntry(f"r{index}", "agent", words))
    return entries


async def _words(deps: GatewayDeps, content: Content, place: SessionKey) -> str:
    value = await load_in(deps.store, content, place)
    words = value if isinstance(value, str) else MISSING
    return words if len(words) <= TEXT_CHARS else words[:TEXT_CHARS] + "…"
