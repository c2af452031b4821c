"""Lists past calls from the audit log: requests with their outcome, and calls run by rule."""

from collections.abc import Collection
from typing import Final

from signoff.audit.log import AuditLog
from signoff.audit.record import Record
from signoff.contracts.frozen_model import FrozenModel
from signoff.formats.replace import replace
from signoff.languages.catalogue import ENGLISH
from signoff.texts.record_entries import claimant_words

_KINDS: Final = ("request", "revision", "auto", "ending")


class PastCall(FrozenModel):
    """One call that was requested or ran by rule."""

    stream: str
    call: str
    tool: str
    at: str
    """The time of the request or execution, as formatted by `moment_text`."""
    digest: str
    """The digest of its arguments, which the audit log does not contain."""
    definition: str
    """The hash of the tool's declaration at that time."""
    became: str = ""
    """`auto`, or the end state of its request, or "" while it waits."""
    by: str = ""
    """The person who decided, or ""."""


async def past_calls(log: AuditLog, since: str, *, tenant: str) -> list[PastCall]:
    """Ordered by turn.

    `since` is formatted by `moment_text`. `tenant` "" selects all tenants. A request that was asked again counts once,
    in its latest form.
    """
    calls: dict[tuple[str, str], PastCall] = {}
    async for record in log.records(tenant=tenant, since=since, kinds=_KINDS):
        _take(calls, record)
    return list(calls.values())


async def past_calls_of(log: AuditLog, streams: Collection[str]) -> list[PastCall]:
    """As `past_calls`, of some turns."""
    calls: dict[tuple[str, str], PastCall] = {}
    for record in await log.of_kinds(_KINDS, streams):
        _take(calls, record)
    return list(calls.values())


def _take(found: dict[tuple[str, str], PastCall], record: Record) -> None:
    facts = record.facts
    if "call" not in facts:
        return
    place = record.stream, str(facts["call"])
    if record.kind == "ending":
        request = found.get(place)
        # Another digest marks the end of an older revision. It is irrelevant for the latest one.
        if request is not None and facts.get("digest") == request.digest:
            found[place] = replace(
                request, became=str(facts.get("state", "")), by=record.subject or claimant_words(facts, ENGLISH)
            )
        return
    found[place] = PastCall(
        stream=record.stream,
        call=str(facts["call"]),
        tool=str(facts.get("tool", "")),
        at=record.at,
        digest=str(facts.get("digest", "")),
        definition=str(facts.get("definition", "")),
        became="auto" if record.kind == "auto" else "",
    )
