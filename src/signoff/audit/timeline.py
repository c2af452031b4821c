"""Shows a stream to people: one line for each record."""

from collections.abc import Sequence
from typing import NamedTuple

from signoff.audit.log import TURNS_KEYS
from signoff.audit.record import Record
from signoff.contracts.errors import Refused
from signoff.formats.visible_text import whole_line
from signoff.languages.catalogue import ENGLISH
from signoff.texts.record_entries import claim_words, claimant_words, entry_words


class TimelineEntry(NamedTuple):
    """One record as text."""

    at: str
    """The time of the event: ISO 8601 in UTC, to the second."""
    who: str
    """The person who acted."""
    what: str


def timeline(records: Sequence[Record], language: str = ENGLISH) -> list[TimelineEntry]:
    """Never raises: a changed record is shown as changed, and one without a text by its kind and data.

    Marks replace characters that a terminal or a browser would interpret or hide.
    """
    return [
        TimelineEntry(
            whole_line(record.at[:19].replace("T", " ")),
            whole_line(record.subject or _claimed(record, language)),
            whole_line(_words(record, language)),
        )
        for record in _without_repeats(records)
    ]


def _without_repeats(records: Sequence[Record]) -> list[Record]:
    """Remove a turn's reports of events that others observed as well."""
    seen = {record.key for record in records}
    return [record for record in records if not (is_claim(record) and record.key.removeprefix(TURNS_KEYS) in seen)]


def _claimed(record: Record, language: str) -> str:
    try:
        return claimant_words(record.facts, language)
    except Exception:
        return ""


def is_claim(record: Record) -> bool:
    """Return whether only its turn reports a record, which therefore proves nothing."""
    return record.key.startswith(TURNS_KEYS)


def _words(record: Record, language: str) -> str:
    words = _stated(record, language)
    return claim_words(words, language) if is_claim(record) else words


def _stated(record: Record, language: str) -> str:
    try:
        return entry_words(record.kind, record.facts, language)
    except Refused as error:
        return error.message
    except Exception:
        # Anyone who runs under a turn's id can write anything: one entry must not hide all others of the stream.
        return f"{record.kind}: {record.data}"
