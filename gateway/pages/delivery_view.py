"""Lists who was told of a request beside the inbox, on which channel, and what is known of each card."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from signoff.gateway.auth.person_lookup import display_name
from signoff.people.directory import Directory
from signoff.registry.manifest.channel_sections import DeclaredChannel
from signoff.store.delivery_queue import DeliveryRow
from signoff.texts.catalogue import text


@dataclass(frozen=True)
class DeliveryLine:
    """One card: for whom, on which channel, its state for machines and in words, and why it failed."""

    who: str
    channel: str
    state: str
    told: str
    why: str


def told_lines(
    rows: Iterable[DeliveryRow], declared: Mapping[str, DeclaredChannel], people: Directory, language: str
) -> tuple[DeliveryLine, ...]:
    """Returns the cards of a request, in the order in which they were planned; those that nobody needed any more left
    out.
    """
    return tuple(_line(row, declared, people, language) for row in rows if row.state != "dropped")


def _line(row: DeliveryRow, declared: Mapping[str, DeclaredChannel], people: Directory, language: str) -> DeliveryLine:
    kind = declared[row.channel].kind if row.channel in declared else ""
    failed = row.state == "failed" or (row.state == "planned" and bool(row.code))
    return DeliveryLine(
        who=display_name(people, row.person, row.tenant),
        channel=row.channel if kind in ("", row.channel) else f"{row.channel} ({kind})",
        state=row.state,
        told=text(f"told.{row.state}", language),
        why=(row.told or row.code)[:200] if failed else "",
    )
