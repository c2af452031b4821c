from rich.console import Console

from signoff.cli.terminal.effect_lines import effect_lines
from signoff.contracts.preview import Diff, Email, File, Image, Sql, Table, Text
from signoff.contracts.responses import EffectPreview


def written(effect: EffectPreview) -> str:
    console = Console(width=100, no_color=True)
    with console.capture() as shown:
        console.print(effect_lines(effect))
    return shown.get()


def test_parts_of_a_preview_are_printed() -> None:
    parts = (
        Diff(title="Balance", before="a\n70\n", after="a\n50\n"),
        Table(columns=("to", "amount"), rows=(("Ana", 420), (None, 1))),
        Email(to=("ana@example.com",), subject="Invoice", text="Dear Ana"),
        Sql(statement="DELETE FROM a", plan="Delete on a"),
        File(path="/srv/a.txt", size=12, sha256="ab12"),
        Image(data=b"", text="A chart"),
        Text(text="red \x1b[31m and \u202e [bold]"),
    )
    text = written(EffectPreview(parts=parts))
    for line in (
        "Balance",
        "  a",
        "- 70",
        "+ 50",
        "420",
        "To: ana@example.com",
        "Subject: Invoice",
        "DELETE FROM a",
        "Delete on a",
        "/srv/a.txt, 12 bytes, SHA-256 ab12",
        "page: A chart",
        "red ⟦U+001B⟧[31m and ⟦U+202E⟧ [bold]",
    ):
        assert line in text, line
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_fault_of_a_preview_is_printed() -> None:
    text = written(EffectPreview(parts=(), fault="slow"))
    assert text.split("\n")[1:3] == ["Preview", "There is no preview: it took too long."]
