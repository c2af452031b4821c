"""Lists calls of the past from the record: those that were asked with their outcome, and those that ran by rule."""

from collections.abc import AsyncIterator

from signoff.audit.log import AuditLog
from signoff.audit.record import Record
from signoff.contracts.frozen_model import FrozenModel
from signoff.formats.replace import replace
from signoff.languages.catalogue import ENGLISH
from signoff.texts.record_entries import claimant_words


class PastCall(FrozenModel):
    """One call that was asked about or ran by rule."""

    stream: str
    """The stream of its turn."""
    call: str
    """The call's id."""
    tool: str
    """The tool's name."""
    at: str
    """When it was asked or ran, as a text of `moment_text`."""
    digest: str
    """Binds its arguments, which the record does not hold."""
    definition: str
    """The hash of the tool's declaration at the time."""
    became: str = ""
    """`auto`, or how its request ended; "" while it waits."""
    by: str = ""
    """Who decided, or ""."""


async def past_calls(log: AuditLog, since: str, *, tenant: str) -> list[PastCall]:
    """Returns the calls of `tenant`, or of all where it is "", since a text of `moment_text`, by turn.

    A request that was asked anew counts once, in its last form.
    """
    kinds = ("request", "revision", "auto", "ending")
    found: dict[tuple[str, str], PastCall] = {}
    async for record in _find_known(log.records(tenant=tenant, since=since, kinds=kinds)):
        _take(found, record)
    return list(found.values())


async def _find_known(records: AsyncIterator[Record]) -> AsyncIterator[Record]:
    async for record in records:
        if "call" in record.facts:
            yield record


def _take(found: dict[tuple[str, str], PastCall], record: Record) -> None:
    facts = record.facts
    place = record.stream, str(facts["call"])
    if record.kind == "ending":
        asked = found.get(place)
        # Another digest is an ending of an older revision, and says nothing of what was asked last.
        if asked is not None and facts.get("digest") == asked.digest:
            found[place] = replace(
                asked, became=str(facts.get("state", "")), by=record.subject or claimant_words(facts, ENGLISH)
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
