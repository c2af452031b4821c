"""Finds the message with which a person started a turn."""

import asyncio
import logging
from typing import Final

from signoff.approvals.redaction import redact_secrets, secret_values
from signoff.contracts.errors import NotFound, ServerUnavailable
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.message import TextPart
from signoff.contracts.turn import TurnInput
from signoff.gateway.deps import GatewayDeps
from signoff.keys.signature_form import hash_words
from signoff.store.content_store import load_in
from signoff.store.request_reader import LoadedRequest
from signoff.store.store import Store

PATIENCE: Final = 0.5
"""Seconds for the server's answer."""
REQUESTS: Final = 20
"""The most other requests of a turn whose cards show the words."""
_log = logging.getLogger(__name__)


async def read_words(deps: GatewayDeps, loaded: LoadedRequest) -> str:
    """Return the message with masked secrets, or "" without proof of its author. Never raises."""
    request = loaded.request
    if not request.requester.words or not request.requester.is_person:
        return ""
    key = TurnKey(request.tenant, request.session, request.turn)
    try:
        async with asyncio.timeout(PATIENCE):
            given = await deps.client.input_of(key)
            found = "" if given is None else await _find(deps.store, given, request.requester.words)
            return redact_secrets(found, await _secrets(deps, key, loaded)) if found else ""
    except (NotFound, ServerUnavailable, TimeoutError):
        return ""
    # The card comes from the store alone: a forged turn must not break it.
    except Exception as error:
        _log.warning("cannot read the words of %r (%s)", request.id, type(error).__name__)
        return ""


async def _secrets(deps: GatewayDeps, key: TurnKey, loaded: LoadedRequest) -> frozenset[str]:
    """Raises `NotFound` for an unproved request, and for too many."""
    others = {each.id for each in await deps.requests.list_of_turn(key)} - {loaded.request.id}
    if len(others) > REQUESTS:
        raise NotFound("the turn has too many requests")
    secrets = secret_values(loaded.args, {*loaded.request.secrets, *loaded.declaration["secrets"]})
    for name in others:
        other = await deps.requests.find(name)
        secrets |= secret_values(other.args, {*other.question.secrets, *other.declaration["secrets"]})
    return secrets


async def _find(store: Store, given: TurnInput, words: str) -> str:
    # Anyone who can start workflows chose the messages of `given`: only the signed hash `words` proves one.
    place = SessionKey(given.tenant_id, given.session_id)
    for message in reversed(given.messages):
        part = message.parts[0] if message.role == "user" and len(message.parts) == 1 else None
        if not isinstance(part, TextPart):
            continue
        text = await load_in(store, part.text, place)
        if isinstance(text, str) and hash_words(text) == words:
            return text
    return ""
