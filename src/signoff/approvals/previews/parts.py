"""Checks, masks and hashes the parts of a preview. Pure."""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from signoff.approvals.redaction import redact_secrets
from signoff.contracts.approval import Question
from signoff.contracts.canonical_json import NotCanonical, json_bytes, sha256_hex
from signoff.contracts.limits import KIB
from signoff.contracts.preview import AnyPart, Image, PreviewPart, Table

PREVIEW_BYTES: Final = 256 * KIB
"""Maximum size of a preview as JSON, in bytes."""
PARTS: Final = 12
TABLE_ROWS: Final = 500
TABLE_COLUMNS: Final = 20
PREVIEW_CHANGES: Final = 3
"""The number of changes of the bound parts that end a call."""
_PARTS: Final = TypeAdapter(tuple[AnyPart, ...])
_KEPT: Final = frozenset(("kind", "name", "sha256", "data"))
"""Fields without text from a call's secrets."""
_IMAGES: Final = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


def parse_preview(returned: object) -> tuple[AnyPart, ...] | None:
    """Accept one part or a list of parts. `None` for anything else."""
    given = returned if isinstance(returned, list | tuple) else (returned,)
    if not given or len(given) > PARTS or not all(isinstance(each, PreviewPart) for each in given):
        return None
    try:
        # Validate again: a part made by `model_construct` or by another version may hold anything.
        parts = _PARTS.validate_python([dict(each) for each in given])
    except (ValidationError, ValueError, RecursionError):
        return None
    names = [each.name for each in parts if each.name]
    if len(set(names)) < len(names) or not all(map(_is_sound, parts)):
        return None
    return parts


def read_parts(stored: Any) -> tuple[AnyPart, ...]:
    """Read parts from the store. Raises ValueError if they are none."""
    return _PARTS.validate_python(stored)


def parts_json(parts: Sequence[AnyPart]) -> list[Any] | None:
    """Return the parts as JSON, or `None` if they are larger than `PREVIEW_BYTES` or hold half surrogates."""
    body = [each.model_dump(mode="json") for each in parts]
    try:
        return body if len(json_bytes(body)) <= PREVIEW_BYTES else None
    except NotCanonical:
        return None


def mask_parts(parts: Sequence[AnyPart], secrets: Collection[str]) -> tuple[AnyPart, ...]:
    """Replace the secret values of a call in every text. A picture cannot be masked, so it is left out."""
    if not secrets:
        return tuple(parts)
    shown = [each for each in parts if not isinstance(each, Image)]
    return _PARTS.validate_python([_mask(each.model_dump(), secrets) for each in shown])


def bound_hash(parts: Sequence[AnyPart], binds: Sequence[str]) -> str | None:
    """Return the SHA-256 of the named parts, "" without names, or `None` if a part is missing."""
    if not binds:
        return ""
    named = {each.name: each.model_dump(mode="json", exclude={"title"}) for each in parts if each.name}
    if not all(name in named for name in binds):
        return None
    return sha256_hex({name: named[name] for name in binds})


def count_changes(questions: Sequence[Question]) -> int:
    """Return how often the bound parts differed between a call's successive questions, without those after edits."""
    asked = [(each.preview.bound, each.edit_of) for each in questions if each.preview and each.kind == "approval"]
    return sum(not edit_of and bound != before for (before, _), (bound, edit_of) in pairwise(asked))


def image_type(image: Image) -> str:
    """Return the media type by the first bytes, or "" for no picture."""
    data = image.data
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _IMAGES.items() if data.startswith(start)), "")


def _is_sound(part: AnyPart) -> bool:
    if isinstance(part, Image):
        return bool(image_type(part))
    if isinstance(part, Table):
        fits = len(part.columns) <= TABLE_COLUMNS and len(part.rows) <= TABLE_ROWS
        return fits and all(len(row) == len(part.columns) for row in part.rows)
    return True


def _mask(value: Any, secrets: Collection[str], field: str = "") -> Any:
    if isinstance(value, Mapping):
        return {key: _mask(each, secrets, str(key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_mask(each, secrets) for each in value]
    if isinstance(value, bool) or value is None or field in _KEPT:
        return value
    text = str(value)
    masked = redact_secrets(text, secrets)
    return value if masked == text else masked
