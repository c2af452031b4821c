"""Makes the parts of a preview for pages: text without hidden characters, changed lines, tables with sums."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, NamedTuple

from markupsafe import Markup
from starlette.responses import Response

from signoff.approvals.confirmation import counts
from signoff.approvals.previews.lines import LINE_CHARS, PreviewLine, changed_lines, text_lines
from signoff.approvals.previews.parts import image_type
from signoff.contracts.approval import Question
from signoff.contracts.errors import NotFound
from signoff.contracts.preview import AnyPart, Cell, Diff, Email, File, Image, Markdown, Sql, Table
from signoff.formats.visible_text import one_line
from signoff.gateway.approvals.preview_reader import load_parts, may_see_preview
from signoff.gateway.approvals.value_tables import ValueTable, currency_of, is_amount, split_by_currency, sum_words
from signoff.gateway.auth.visitor import Visitor
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.pages.previews.markdown import render_markdown
from signoff.store.request_reader import LoadedRequest
from signoff.texts.formatter import Formatter

CARD_LINES: Final = 12
"""Lines and rows of one part on the card. The preview's own page shows all."""
_SMALLEST_SUM: Final = 2
_NO_FIELDS: Final[tuple[tuple[str, str], ...]] = ()


@dataclass(frozen=True)
class PartView:
    """One part of a preview."""

    kind: str
    title: str
    fields: tuple[tuple[str, str], ...] = ()
    """Named values, such as the recipients of an e-mail: keys of the catalogue, and values."""
    lines: tuple[PreviewLine, ...] = ()
    table: ValueTable | None = None
    markdown: Markup | None = None
    """The lines as HTML."""
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
    if not _may_see(deps, loaded, visitor):
        return None
    question = loaded.rows.latest
    return preview_view(question, await load_parts(deps.store, question), address, visitor.formatter, limit)


async def load_image(deps: GatewayDeps, loaded: LoadedRequest, visitor: Visitor, number: str) -> Picture | None:
    """Return the picture of a part, by the part's number from 0. Raises as `load_preview`."""
    parts = await load_parts(deps.store, loaded.rows.latest) if _may_see(deps, loaded, visitor) else ()
    part = dict(zip(map(str, range(len(parts))), parts, strict=True)).get(number)
    if not isinstance(part, Image) or not (kind := image_type(part)):
        return None
    return Picture(part.data, kind)


def picture_response(picture: Picture | None) -> Response:
    """Raises `NotFound` without a picture."""
    if picture is None:
        raise NotFound("this request has no such picture for you")
    return Response(picture.data, media_type=picture.media_type, headers={"cache-control": "private, no-store"})


def preview_view(
    question: Question, parts: Sequence[AnyPart], address: str, formatter: Formatter, limit: int | None = CARD_LINES
) -> PreviewView | None:
    """Return `None` for a question without a preview. `address` is that of the preview's page."""
    if question.preview is None:
        return PreviewView(fault="none", required=True) if question.preview_required else None
    views = tuple(_part(part, f"{address}/{number}", formatter, limit) for number, part in enumerate(parts))
    return PreviewView(views, question.preview.fault, question.preview_required)


def _part(part: AnyPart, address: str, formatter: Formatter, limit: int | None) -> PartView:
    title, fields = one_line(part.title, LINE_CHARS).text, _NO_FIELDS
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
        lines = changed_lines(part.before, part.after)
    elif isinstance(part, Sql):
        lines = text_lines(part.plan)
        fields = (("statement", part.statement),)
    elif isinstance(part, Email):
        sent = (("to", part.to), ("cc", part.cc), ("bcc", part.bcc), ("subject", (part.subject,)))
        lines, fields = text_lines(part.text), tuple((name, ", ".join(values)) for name, values in sent if any(values))
    else:
        lines = text_lines(part.text)
    shown = tuple(lines[:limit])
    markdown = render_markdown(shown) if isinstance(part, Markdown) else None
    return PartView(part.kind, title, _fields(fields), shown, markdown=markdown, left=_left(lines, limit))


def _fields(named: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((f"preview.{name}", _shown(value)) for name, value in named)


def _left(items: Sequence[object], limit: int | None) -> int:
    return 0 if limit is None else max(len(items) - limit, 0)


def _shown(text: str) -> str:
    return "\n".join(one_line(line, LINE_CHARS).text for line in text.splitlines())


def _table(part: Table, title: str, formatter: Formatter, limit: int | None) -> ValueTable:
    columns = list(zip(*part.rows, strict=True)) if part.rows else [()] * len(part.columns)
    counted = [counts(name.replace(" ", "_")) for name in part.columns]
    numbers = [_numbers(values) if each else [] for values, each in zip(columns, counted, strict=True)]
    currencies = [next(filter(None, map(currency_of, part.columns, row)), "") for row in part.rows]
    written = tuple(
        sum_words(split_by_currency(values, currencies if is_amount(name) else ()), formatter)
        for name, values in zip(part.columns, numbers, strict=True)
    )
    return ValueTable(
        label=title,
        columns=tuple(one_line(name, LINE_CHARS).text for name in part.columns),
        numeric=tuple(map(bool, numbers)),
        rows=tuple(
            (str(number), tuple(_cell(value, formatter, each) for value, each in zip(row, counted, strict=True)))
            for number, row in enumerate(part.rows[:limit], 1)
        ),
        sums=written if any(written) and len(part.rows) >= _SMALLEST_SUM else (),
        total=len(part.rows),
    )


def _cell(value: Cell, formatter: Formatter, counted: bool) -> str:
    if counted and isinstance(value, int | float) and not isinstance(value, bool):
        return formatter.number(Decimal(str(value)), 0)
    return "" if value is None else one_line(str(value), LINE_CHARS).text


def _numbers(values: Sequence[Cell]) -> list[Decimal]:
    numbers = [each for each in values if isinstance(each, int | float) and not isinstance(each, bool)]
    return [Decimal(str(each)) for each in numbers] if len(numbers) == len(values) else []


def _may_see(deps: GatewayDeps, loaded: LoadedRequest, visitor: Visitor) -> bool:
    return may_see_preview(loaded.request, visitor.person, deps.people, visitor.formatter.now)
