"""Runs a tool's preview. A preview that fails is a fault of the question, never an error."""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from signoff.activities.hooks.hook_caller import NoAnswer, ask
from signoff.approvals.previews.parts import bound_hash, mask_parts, parts_json
from signoff.approvals.redaction import secret_values
from signoff.contracts.call import CallContext
from signoff.contracts.canonical_json import NotCanonical, sha256_hex
from signoff.contracts.ids import SessionKey
from signoff.contracts.preview import AnyPart, PreviewFault, PreviewReference
from signoff.registry.catalog import Catalog
from signoff.registry.hooks import PREVIEW, hook_context
from signoff.registry.tool import Tool
from signoff.store.content_store import to_content
from signoff.store.store import Store

_log = logging.getLogger("signoff.activities")


class BoundParts(NamedTuple):
    """The parts that a tool binds, by name, and their hash."""

    parts: Mapping[str, AnyPart]
    sha256: str


async def preview_call(
    catalog: Catalog, store: Store, ctx: CallContext, tool: Tool, args: Mapping[str, Any]
) -> PreviewReference | None:
    """Store the preview of a call, with its secrets masked. `None` for a tool without previews.

    Raises `StoreUnavailable`.
    """
    if tool.preview is None:
        return None
    found = await _find_parts(catalog, ctx, tool, args)
    if isinstance(found, str):
        return PreviewReference(fault=found)
    parts, bound = found
    body = parts_json(mask_parts(parts, secret_values(args, tool.masked_arguments)))
    if body is None:
        return PreviewReference(fault=_fault(tool, "too_large"))
    kept = await to_content(store, body, SessionKey(ctx.tenant, ctx.session))
    return PreviewReference(parts=kept, sha256=sha256_hex(body), bound=bound)


async def bound_parts(catalog: Catalog, ctx: CallContext, tool: Tool, args: Mapping[str, Any]) -> BoundParts | None:
    """Compute the bound parts of a call again. `None` if the preview fails."""
    found = await _find_parts(catalog, ctx, tool, args)
    if isinstance(found, str):
        return None
    parts, bound = found
    return BoundParts({each.name: each for each in parts if each.name in tool.binds}, bound)


async def _find_parts(
    catalog: Catalog, ctx: CallContext, tool: Tool, args: Mapping[str, Any]
) -> tuple[tuple[AnyPart, ...], str] | PreviewFault:
    """Return the parts with the hash of the bound ones, or a fault."""
    if tool.preview is None:
        return _fault(tool, "invalid")
    try:
        parts = await ask(PREVIEW, tool.preview, args, hook_context(ctx, catalog.fields))
        bound = bound_hash(parts, tool.binds)
    except NoAnswer as none:
        return _fault(tool, none.fault)
    except NotCanonical:
        return _fault(tool, "invalid")
    return _fault(tool, "invalid") if bound is None else (parts, bound)


def _fault(tool: Tool, fault: PreviewFault) -> PreviewFault:
    # The cause may quote the previewed data.
    _log.warning("tool %s: no preview (%s)", tool.name, fault)
    return fault
