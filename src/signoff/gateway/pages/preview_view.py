"""Makes the parts of a preview for pages: text without hidden characters, changed lines, tables with sums."""

import base64
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal, NamedTuple

from starlette.responses import Response

from signoff.approvals.preview_parts import image_type, read_parts
from signoff.contracts.approval import ApprovalRequest, Question
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.errors import NotFound, StoreUnavailable
from signoff.contracts.preview import AnyPart, Cell, Diff, Email, File, Image, Sql, Table
from signoff.formats.visible_text import one_line
from signoff.gateway.approvals.value_tables import ValueTable
from signoff.gateway.auth.visitor import Visitor
from signoff.gateway.deps import GatewayDeps
from signoff.people.eligibility import approver_spec_of, resolve_eligibility
from signoff.store.content_store import load
from signoff.store.request_reader import LoadedRequest
from signoff.store.store import Store
from signoff.texts.formatter import Formatter

CARD_LINES: Final = 40
"""Lines and rows of one part on the card. The preview's own page shows all."""
_LINE_CHARS: Final = 400
_CONTEXT_LINES: Final = 3
_COMPARED_LINES: Final = 1_000
"""Longer texts are shown as replaced: comparing them takes too long."""
_SMALLEST_SUM: Final = 2
_NO_FIELDS: Final[tuple[tuple[str, str], ...]] = ()

Tone = Literal["", "was", "now", "gap"]


@dataclass(frozen=True)
class PreviewLine:
    """One line of a text or of a difference."""

    text: str
    tone: Tone = ""
    """`was`: only before, `now`: only after, `gap`: equal lines are left out here."""


@dataclass(frozen=True)
class PartView:
    """One part of a preview."""

    kind: str
    title: str
    fields: tuple[tuple[str, str], ...] = ()
    """Named values, such as the recipients of an e-mail: keys of the catalogue, and values."""
    lines: tuple[PreviewLine, ...] = ()
    table: ValueTable | None = None
    image: str = ""
    """The address of the picture."""
    left: int = 0
    """Number of lines or rows that are left out."""


@dataclass(frozen=True)
class PreviewView:
    """A preview, or why there is none."""

    parts: tuple[PartView, ...] = ()
    fault: str = ""
    required: bool = False

    @property
    def is_whole(self) -> bool:
        """Return whether each part is drawn to its end."""
        return not any(part.left for part in self.parts)


class Picture(NamedTuple):
    """The bytes of a part's picture, and their media type."""

    data: bytes
    media_type: str


async def load_preview(
    deps: GatewayDeps, loaded: LoadedRequest, visitor: Visitor, address: str, limit: int | None = CARD_LINES
) -> PreviewView | None:
    """Return the preview for an approver, or `None` for other readers. Raises `StoreUnavailable`."""
    if not _may_see(deps, loaded.request, visitor):
        return None
    question = loaded.rows.latest
    return preview_view(question, await load_parts(deps.store, question), address, visitor.formatter, limit)


async def load_image(deps: GatewayDeps, loaded: LoadedRequest, visitor: Visitor, number: int) -> Picture | None:
    """Return the picture of a part, by the part's number from 0. Raises as `load_preview`."""
    parts = await load_parts(deps.store, loaded.rows.latest) if _may_see(deps, loaded.request, visitor) else ()
    part = parts[number] if 0 <= number < len(parts) else None
    if not isinstance(part, Image) or not (kind := image_type(part)):
        return None
    return Picture(base64.b64decode(part.data), kind)


def picture_response(picture: Picture | None) -> Response:
    """Raises `NotFound` without a picture."""
    if picture is None:
        raise NotFound("this request has no such picture for you")
    return Response(picture.data, media_type=picture.media_type, headers={"cache-control": "private, no-store"})


def _may_see(deps: GatewayDeps, request: ApprovalRequest, visitor: Visitor) -> bool:
    """Return whether the visitor may decide the request: a preview may read more than its requester may."""
    now = visitor.formatter.now
    return not resolve_eligibility(visitor.person, deps.people, approver_spec_of(request), now).code


async def load_parts(store: Store, question: Question) -> tuple[AnyPart, ...]:
    """Return the parts as approvers see them. Raises `StoreUnavailable`, also for parts that were changed."""
    preview = question.preview
    if preview is None or preview.parts is None:
        return ()
    body = await load(store, preview.parts)
    if sha256_hex(body) != preview.sha256:
        raise StoreUnavailable(f"the preview of `{question.id}` was changed in the store")
    return read_parts(body)


def preview_view(
    question: Question, parts: Sequence[AnyPart], address: str, formatter: Formatter, limit: int | None = CARD_LINES
) -> PreviewView | None:
    """Return `None` for a question without a preview. `address` is that of the preview's page."""
    if question.preview is None:
        return PreviewView(fault="none", required=True) if question.preview_required else None
    views = tuple(_part(part, f"{address}/{number}", formatter, limit) for number, part in enumerate(parts))
    return PreviewView(views, question.preview.fault, question.preview_required)


def _part(part: AnyPart, address: str, formatter: Formatter, limit: int | None) -> PartView:
    title, fields = one_line(part.title, _LINE_CHARS).text, _NO_FIELDS
    if isinstance(part, Image):
        described = _shown(part.text)
        return PartView(part.kind, title, (("preview.image", described),) if described else (), image=address)
    if isinstance(part, File):
        size = formatter.number(Decimal(part.size), 0)
        fields = (("path", part.path), ("size", size), ("sha256", part.sha256))
        return PartView(part.kind, title, _fields(fields))
    if isinstance(part, Table):
        return PartView(part.kind, title, table=_table(part, title, formatter, limit), left=_left(part.rows, limit))
    if isinstance(part, Diff):
        lines = list(_changes(part.before.splitlines(), part.after.splitlines()))
    elif isinstance(part, Sql):
        lines = _lines(part.plan)
        fields = (("statement", part.statement),)
    elif isinstance(part, Email):
        sent = (("to", part.to), ("cc", part.cc), ("bcc", part.bcc), ("subject", (part.subject,)))
        lines, fields = _lines(part.text), tuple((name, ", ".join(values)) for name, values in sent if any(values))
    else:
        lines = _lines(part.text)
    return PartView(part.kind, title, _fields(fields), tuple(lines[:limit]), left=_left(lines, limit))


def _fields(named: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((f"preview.{name}", _shown(value)) for name, value in named)


def _left(items: Sequence[object], limit: int | None) -> int:
    return 0 if limit is None else max(len(items) - limit, 0)


def _shown(text: str) -> str:
    return "\n".join(one_line(line, _LINE_CHARS).text for line in text.splitlines())


def _lines(text: str) -> list[PreviewLine]:
    return [PreviewLine(one_line(line, _LINE_CHARS).text) for line in text.splitlines()]


def _changes(before: Sequence[str], after: Sequence[str]) -> Iterator[PreviewLine]:
    """Yield changed lines with the equal lines around them."""
    if max(len(before), len(after)) > _COMPARED_LINES:
        yield from _toned(before, "was")
        yield from _toned(after, "now")
        return
    matcher = difflib.SequenceMatcher(None, before, after)
    for number, group in enumerate(matcher.get_grouped_opcodes(_CONTEXT_LINES)):
        if number:
            yield PreviewLine("", "gap")
        for tag, was, was_end, now, now_end in group:
            if tag == "equal":
                yield from _lines("\n".join(before[was:was_end]))
                continue
            yield from _toned(before[was:was_end], "was")
            yield from _toned(after[now:now_end], "now")


def _toned(lines: Sequence[str], tone: Tone) -> Iterator[PreviewLine]:
    for line in lines:
        yield PreviewLine(one_line(line, _LINE_CHARS).text, tone)


def _table(part: Table, title: str, formatter: Formatter, limit: int | None) -> ValueTable:
    columns = list(zip(*part.rows, strict=True)) if part.rows else [()] * len(part.columns)
    sums = [_sum(values) for values in columns]
    written = tuple("" if total is None else formatter.number(total, 0) for total in sums)
    return ValueTable(
        label=title,
        columns=tuple(one_line(name, _LINE_CHARS).text for name in part.columns),
        numeric=tuple(total is not None for total in sums),
        rows=tuple(
            (str(number), tuple(_cell(value, formatter) for value in row))
            for number, row in enumerate(part.rows[:limit], 1)
        ),
        sums=written if any(written) and len(part.rows) >= _SMALLEST_SUM else (),
        total=len(part.rows),
    )


def _cell(value: Cell, formatter: Formatter) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return formatter.number(Decimal(str(value)), 0)
    return "" if value is None else one_line(str(value), _LINE_CHARS).text


def _sum(values: Sequence[Cell]) -> Decimal | None:
    numbers = [each for each in values if isinstance(each, int | float) and not isinstance(each, bool)]
    if not numbers or len(numbers) < len(values):
        return None
    return sum((Decimal(str(each)) for each in numbers), Decimal(0))
