"""Finds the message with which a person started a turn."""

import asyncio
import logging
from typing import Final

from signoff.contracts.errors import NotFound, ServerUnavailable
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.message import TextPart
from signoff.contracts.person import Principal
from signoff.contracts.turn import TurnInput
from signoff.gateway.deps import GatewayDeps
from signoff.keys.signature_form import hash_words
from signoff.registry.catalog import Catalog
from signoff.registry.gates.actor_filters import is_permitted
from signoff.store.content_store import load_in
from signoff.store.request_reader import LoadedRequest
from signoff.store.store import Store

PATIENCE: Final = 0.5
"""Seconds for the server's answer."""
_log = logging.getLogger(__name__)


async def read_words(deps: GatewayDeps, loaded: LoadedRequest) -> str:
    """Return the message, or "" without proof of its author or if the actor's tools hide values. Never raises."""
    request = loaded.request
    if not request.requester.words or not request.requester.is_person:
        return ""
    key = TurnKey(request.tenant, request.session, request.turn)
    try:
        if _hides_values(deps.catalog, loaded):
            return ""
        async with asyncio.timeout(PATIENCE):
            given = await deps.client.input_of(key)
            return "" if given is None else await _find(deps.store, given, request.requester)
    except (NotFound, ServerUnavailable, TimeoutError):
        return ""
    # The card comes from the store alone: a forged turn must not break it.
    except Exception as error:
        _log.warning("cannot read the words of %r (%s)", request.id, type(error).__name__)
        return ""


def _hides_values(catalog: Catalog, loaded: LoadedRequest) -> bool:
    # The message may hold a secret of any call of its turn, even of one that no request shows.
    request = loaded.request
    if request.secrets or loaded.declaration["secrets"] or request.show is not None:
        return True
    actor, scopes = catalog.actors.get(request.actor), catalog.scopes.get(request.actor)
    if actor is None or scopes is None or actor.external is not None:
        return True
    tools = [tool for tool in catalog.every_tool if tool.activity in scopes.placed or is_permitted(actor, tool)]
    return any(tool.masked_arguments or catalog.policy(tool.activity).rules.show.only is not None for tool in tools)


async def _find(store: Store, given: TurnInput, requester: Principal) -> str:
    # Anyone who can start workflows chose the messages of `given`: only the signed hash proves one.
    place = SessionKey(given.tenant_id, given.session_id)
    for message in reversed(given.messages):
        part = message.parts[0] if message.role == "user" and len(message.parts) == 1 else None
        if not isinstance(part, TextPart):
            continue
        text = await load_in(store, part.text, place)
        if isinstance(text, str) and hash_words(text, requester.nonce) == requester.words:
            return text
    return ""
