"""Parses vendors' times of people's messages, to UTC."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def time_from_seconds(value: object) -> datetime | None:
    """Read Unix seconds, a number or digits. None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return datetime.fromtimestamp(float(value), UTC)
    except (ValueError, OverflowError, OSError):
        return None


def time_from_iso(value: object) -> datetime | None:
    """Read an ISO 8601 text with a zone. None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        read = datetime.fromisoformat(value)
        return None if read.tzinfo is None else read.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def time_from_date_header(value: object) -> datetime | None:
    """Read an RFC 5322 date with a zone. None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        read = parsedate_to_datetime(value)
        return None if read.tzinfo is None else read.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
