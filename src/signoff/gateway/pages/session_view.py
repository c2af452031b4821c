"""Makes a session's page: one conversation of the turns that answer its messages."""

import asyncio
import hashlib
from typing import Final

from signoff.contracts.errors import NotFound, ServerUnavailable
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.message import RESPONSE
from signoff.contracts.person import Person
from signoff.contracts.session_messages import SessionTurnView, SessionView
from signoff.contracts.turn import TurnView
from signoff.gateway.auth.person_lookup import display_name
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.pages.turn_view import (
    Transcript,
    TranscriptEntry,
    call_traces,
    message_words,
    place_of,
    transcript_entries,
)
from signoff.languages.catalogue import text

IN_FULL: Final = 20
"""Number of turns shown with their calls. Older ones show only their texts."""
OPEN: Final = ("working", "waiting")


async def turns_in_full(deps: GatewayDeps, view: SessionView) -> dict[str, TurnView]:
    """Return the newest and the running turns. Leaves out unreadable ones."""
    newest = view.turns[-IN_FULL:]
    wanted = [turn for turn in view.turns if turn in newest or turn.state in OPEN]
    views = await asyncio.gather(*(_turn(deps, TurnKey(view.tenant, view.session, turn.turn)) for turn in wanted))
    return {each.turn: each for each in views if each is not None}


async def session_talk(
    deps: GatewayDeps, view: SessionView, turns: dict[str, TurnView], language: str, reader: Person
) -> Transcript:
    """Raises `StoreUnavailable`."""
    entries: list[TranscriptEntry] = []
    traces = await call_traces(deps, [TurnKey(view.tenant, view.session, turn) for turn in turns], reader)
    for turn in view.turns:
        full = turns.get(turn.turn)
        if full is None:
            entries += await _remembered_entries(deps, view, turn, language)
        else:
            entries += await transcript_entries(
                deps, full, language, after=turn.earlier, prefix=f"{turn.turn}-", traces=traces
            )
        if turn.error is not None:
            failed = f"{text('turn.error', language)}: {turn.error.message}"
            entries.append(TranscriptEntry(f"{turn.turn}-error", "agent", failed, speaker=turn.actor))
    for queued in view.queued:
        words = await message_words(deps, queued.message, SessionKey(view.tenant, view.session))
        entries.append(
            TranscriptEntry(f"{queued.message_id}-m0-0", "person", words, speaker=text("talk.queued", language))
        )
    state = view.state
    place = place_of(view)
    version = hashlib.sha256(repr((entries, state, place)).encode()).hexdigest()[:16]
    return Transcript(tuple(entries), state, state in ("running", "suspended"), "", version, place=place)


async def _turn(deps: GatewayDeps, key: TurnKey) -> TurnView | None:
    try:
        return await deps.view(key)
    except (NotFound, ServerUnavailable):
        return None


async def _remembered_entries(
    deps: GatewayDeps, view: SessionView, turn: SessionTurnView, language: str
) -> list[TranscriptEntry]:
    requester, place = display_name(deps.people, turn.requester, view.tenant), SessionKey(view.tenant, view.session)
    entries = [
        TranscriptEntry(
            f"{turn.turn}-m{turn.earlier + number}-0",
            "result" if message.late else "person",
            await message_words(deps, message, place),
            speaker=text("talk.late", language) if message.late else requester,
        )
        for number, message in enumerate(turn.messages)
    ]
    answered = [part.content for part in turn.parts if part.type == RESPONSE]
    return entries + [
        TranscriptEntry(
            f"{turn.turn}-r{number}", "agent", await message_words(deps, content, place), speaker=turn.actor
        )
        for number, content in enumerate(answered)
    ]
