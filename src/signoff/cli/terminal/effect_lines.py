"""Renders the preview of a call's effect as lines for a terminal."""

from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text as Line

from signoff.approvals.previews.lines import PreviewLine, changed_lines, text_lines
from signoff.cli.terminal.tables import clean
from signoff.contracts.preview import AnyPart, Diff, Email, File, Image, Sql, Table
from signoff.contracts.responses import EffectPreview
from signoff.languages.catalogue import ENGLISH, text

_SIGNS: Final = {"was": ("- ", "red"), "now": ("+ ", "green"), "gap": ("  …", "dim"), "": ("  ", "")}


def effect_lines(effect: EffectPreview) -> RenderableType:
    """Return the parts of a preview, or why there is none."""
    title = Line("Preview", style="bold")
    if effect.fault:
        return Group(Line(""), title, Line(text(f"preview.fault.{effect.fault}", ENGLISH)))
    return Group(Line(""), title, *(_part(part) for part in effect.parts))


def _part(part: AnyPart) -> RenderableType:
    title = Line(clean(part.title or part.kind), style="dim")
    if isinstance(part, Table):
        grid = Grid(*map(clean, part.columns))
        for row in part.rows:
            grid.add_row(*("" if value is None else clean(str(value)) for value in row))
        return Group(title, grid)
    return Group(title, *(_line(each) for each in _lines(part)))


def _lines(part: AnyPart) -> list[PreviewLine]:
    if isinstance(part, Diff):
        return changed_lines(part.before, part.after)
    if isinstance(part, Sql):
        return text_lines(f"{part.statement}\n{part.plan}")
    if isinstance(part, Email):
        heads = {"To": part.to, "Cc": part.cc, "Bcc": part.bcc, "Subject": (part.subject,)}
        told = [f"{name}: {', '.join(values)}" for name, values in heads.items() if any(values)]
        return [line for head in told for line in text_lines(head)] + text_lines(part.text)
    if isinstance(part, File):
        return text_lines(f"{part.path}, {part.size} bytes, SHA-256 {part.sha256}")
    if isinstance(part, Image):
        return text_lines(f"a picture, on the request's page: {part.text}".removesuffix(": "))
    return text_lines("" if isinstance(part, Table) else part.text)


def _line(line: PreviewLine) -> Line:
    sign, style = _SIGNS[line.tone]
    return Line(f"{sign}{line.text}", style=style)
