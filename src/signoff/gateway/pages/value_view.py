"""Makes the rows of arguments for pages. Texts keep their lines, and truncated texts show their length.

Values beyond a card's space have their own pages.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final

from starlette.requests import Request

from signoff.approvals.argument_rows import find, keys_from_name, leaves, suspects_of
from signoff.approvals.confirmation import is_money
from signoff.approvals.unseen_values import FullValue
from signoff.contracts.approval import ApprovalRequest, CardRow
from signoff.contracts.errors import BadRequest
from signoff.contracts.limits import ARGUMENTS_BYTES, FIRST_ARGUMENTS
from signoff.formats.lookalikes import mark_words
from signoff.formats.visible_text import ELLIPSIS, MARK, NEWLINE, one_line, scalar_line
from signoff.gateway.approvals.secret_masks import masked_args
from signoff.gateway.approvals.value_check import open_page, unopened_pages, value_pages
from signoff.gateway.approvals.value_tables import CELL_CHARS, Cell, ValueTable, find_tables
from signoff.gateway.auth.visitor import Browser, Visitor
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.pages.form_fields import read_form
from signoff.languages.catalogue import text
from signoff.store.request_reader import LoadedRequest
from signoff.texts.formatter import Formatter

LINES: Final = 12
"""Lines of a text on the card. The rest opens below."""
HEAD_CHARS: Final = 1_500
"""Characters of these lines."""
_CODE_FORMATS: Final = frozenset(("sql", "code", "json", "yaml", "xml", "html", "script", "shell", "regex", "diff"))
_CODE_NAMES: Final = frozenset(
    ("sql", "query", "code", "script", "command", "statement", "expression", "patch", "diff")
)
_WORD: Final = re.compile(r"[A-Za-z][a-z]*")
_ABSENT: Final = object()
_PAGE_DIGITS: Final = 6


@dataclass(frozen=True)
class Row:
    """One argument."""

    label: str
    """Its label; "" for a remark of the card itself."""
    value: str
    """The shown value; the first lines of a long text."""
    secret: bool = False
    rest: str = ""
    """The rest of a text, which opens below `value`; of a truncated value, all of it."""
    lines: int = 0
    """The number of lines of the whole text; 0 for a value on one line."""
    length: int = 0
    """The characters of a value that is not shown whole."""
    code: bool = False
    """Whether it is read letter by letter, such as SQL."""
    remark: bool = False
    name: str = ""
    """The dotted name of the argument."""
    new: str = ""
    """The sentence on a new recipient, or ""."""

    @property
    def is_short(self) -> bool:
        """Whether it is shown whole, on one line."""
        return not (self.secret or self.remark or self.lines or self.length) and len(self.value) <= CELL_CHARS


def value_rows(request: ApprovalRequest, args: Any, formatter: Formatter) -> tuple[Row | ValueTable, ...]:
    """Lists of objects become tables. `args` are the card's arguments with masked secrets, or `None` if unknown."""
    rows = [_row(row, request, args, formatter) for row in request.card.rows]
    cells = [
        Cell(drawn.name, row.label, row.value, is_short=not (row.lines or row.length) and len(row.value) <= CELL_CHARS)
        for drawn, row in zip(request.card.rows, rows, strict=True)
    ]
    return tuple(rows[part] if isinstance(part, int) else part for part in find_tables(cells, args, formatter))


def mark_new(
    rows: Sequence[Row | ValueTable], recipients: Mapping[str, str], args: Any, formatter: Formatter
) -> tuple[Row | ValueTable, ...]:
    """Mark the rows of new `recipients`, by dotted names, and of "", which were not compared."""
    if not recipients:
        return tuple(rows)
    suspects = suspects_of(leaves(args, {}, ())) if isinstance(args, dict) else frozenset[str]()
    return tuple(replace(row, new=_new(row.name, recipients, suspects, formatter)) for row in rows)


def _new(name: str, recipients: Mapping[str, str], suspects: frozenset[str], formatter: Formatter) -> str:
    if not name:
        return ""
    if recipients.get(name):
        return formatter.text("card.new")
    # A short list takes one row, and an object several.
    below = [text for path, text in recipients.items() if path.startswith(f"{name}.")]
    items = [mark_words(one_line(text, CELL_CHARS).text, suspects) for text in below if text]
    found = [formatter.text("card.new.some", values=", ".join(items))] if items else []
    if any(not text and (path == name or name.startswith(f"{path}.")) for path, text in recipients.items()):
        found.append(formatter.text("card.new.unknown"))
    elif not all(below):
        found.append(formatter.text("card.new.unknown.some"))
    return " · ".join(found)


def key_rows(
    rows: Sequence[Row | ValueTable], request: ApprovalRequest, first: Sequence[str], usual: Collection[str] = ()
) -> tuple[tuple[Row, ...], tuple[Row | ValueTable, ...]]:
    """Split off the rows at the top of the card.

    They show the arguments in `first`, or else the amount, new recipients, and then the first ones. Arguments in
    `usual` come last. The last place is for the greatest number of a list of objects: one odd object among many must be
    seen at once.
    """
    amounts = {row.name for row in request.card.rows if is_money(row)}
    short = [row for row in rows if isinstance(row, Row) and row.is_short and len(keys_from_name(row.name)) == 1]
    tables = [row for row in rows if isinstance(row, ValueTable) and row.ranges][:1]
    chosen = (
        [row for row in short if keys_from_name(row.name)[0] in first]
        if first
        else sorted(short, key=lambda row: (row.name not in amounts, not row.new, row.name in usual))
    )[: FIRST_ARGUMENTS - len(tables)]
    lists = [Row(each.label, " · ".join(each.ranges)) for each in tables]
    return (*chosen, *lists), tuple(row for row in rows if row not in chosen)


def usual_arguments(args: Any, schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of arguments whose value is the declared default."""
    given = args if isinstance(args, dict) else {}
    # A property may be declared by `true` alone.
    own = {name: each for name, each in schema.get("properties", {}).items() if isinstance(each, Mapping)}
    return frozenset(name for name, value in given.items() if own.get(name, {}).get("default", _ABSENT) == value)


def values_count(request: ApprovalRequest) -> int:
    """Includes values that the card does not draw."""
    return sum(1 if row.name else row.length for row in request.card.rows)


def _row(row: CardRow, request: ApprovalRequest, args: Any, formatter: Formatter) -> Row:
    if not row.name:
        return Row("", formatter.card_words(row), remark=True)
    label, shown = formatter.label(row.label or row.name), formatter.value(row, request.card.rows)
    if row.secret:
        return Row(label, shown, secret=True, name=row.name)
    whole = _whole(row, args) if row.cut else row.value
    code = _is_code(row)
    # The mark for a line end is the gateway's own; no text can forge it.
    lines = whole.split(NEWLINE)
    at = _first(lines)
    if len(lines) > 1 and at:
        head, below = "\n".join(lines[:at]), "\n".join(lines[at:])
        length = row.length if len(lines) > at else 0
        return Row(label, head, rest=below, lines=len(lines), length=length, code=code, name=row.name)
    rest = "\n".join(lines) if row.cut else ""
    return Row(label, shown, rest=rest, length=row.length if row.cut else 0, code=code, name=row.name)


def _first(lines: Sequence[str]) -> int:
    ends = list(accumulate(map(len, lines[:LINES])))
    return sum(end <= HEAD_CHARS for end in ends)


def _whole(row: CardRow, args: Any) -> str:
    # A marked or truncated name may match another argument, whose text would appear here.
    plain = not row.name.endswith(ELLIPSIS) and NEWLINE not in row.name and MARK not in row.name
    value = find(args, row.name, _ABSENT) if plain and isinstance(args, dict) else _ABSENT
    if not isinstance(value, str):
        return ""
    shown = scalar_line(value, ARGUMENTS_BYTES).text
    return mark_words(shown, suspects_of(leaves(args, {}, ())))


def _is_code(row: CardRow) -> bool:
    if row.format in _CODE_FORMATS:
        return True
    words = _WORD.findall(row.name.rpartition(".")[2])
    return row.format == "string" and bool(words) and words[-1].lower() in _CODE_NAMES


async def show_page(
    deps: GatewayDeps, loaded: LoadedRequest, visitor: Visitor, reader: Browser, request: Request
) -> dict[str, Any]:
    """Return the context of `values.html`, by default for the first page.

    `reader` is the browser of the page's form. Raises `StoreUnavailable`.
    """
    pages = value_pages(loaded)
    page = _page_number(request.query_params.get("page", ""), len(pages))
    asks = _must_be_read(loaded)
    left = await unopened_pages(deps.store, loaded, visitor.person) if asks else 0
    return {
        "effect": loaded.request.card.effect,
        "parts": _page_parts(pages[page - 1], masked_args(loaded.args, loaded.request.secrets), visitor.formatter),
        "total": pages.total,
        "page": page,
        "pages": len(pages),
        "address": request.url.path,
        "left": text("card.values.left" if left else "card.values.done", visitor.formatter.language) if asks else "",
        "read_token": reader.token(_purpose(loaded, page)) if left else "",
    }


async def read_page(
    deps: GatewayDeps, loaded: LoadedRequest, visitor: Visitor, reader: Browser, request: Request
) -> str:
    """Record that the visitor read a page to its end, where its form is.

    Returns the query of the next page, "" after the last. Raises `BadRequest` for a form of another page or question,
    and `StoreUnavailable`.
    """
    form = await read_form(request)
    pages = len(value_pages(loaded))
    page = _page_number(str(form.get("page", "")), pages)
    if not reader.opened(str(form.get("token", "")), _purpose(loaded, page)):
        language = visitor.formatter.language
        raise BadRequest(text("note.out_of_date", language), status=403, language=language)
    if _must_be_read(loaded):
        await open_page(deps.store, loaded, visitor.person, page)
    if page < pages:
        return f"?page={page + 1}"
    return "?page=1" if await unopened_pages(deps.store, loaded, visitor.person) else ""


def _must_be_read(loaded: LoadedRequest) -> bool:
    return loaded.request.state == "pending" and not loaded.request.card.whole


def _purpose(loaded: LoadedRequest, page: int) -> str:
    return f"read {loaded.request.question_hash} {page}"


def _page_parts(values: Sequence[FullValue], args: Any, formatter: Formatter) -> list[FullValue | ValueTable]:
    cells = [Cell(each.name, each.label, each.text, is_short=not each.sha256 and _fits(each.text)) for each in values]
    return [values[part] if isinstance(part, int) else part for part in find_tables(cells, args, formatter)]


def _fits(shown: str) -> bool:
    return len(shown) <= CELL_CHARS and "\n" not in shown


def _page_number(written: str, pages: int) -> int:
    return min(max(_number(written), 1), pages)


def _number(written: str) -> int:
    return int(written) if written.isascii() and written.isdecimal() and len(written) <= _PAGE_DIGITS else 1
