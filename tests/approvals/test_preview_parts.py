import pytest
from pydantic import ValidationError
from tables import table

from signoff.approvals.previews.parts import (
    PARTS,
    PREVIEW_BYTES,
    TABLE_COLUMNS,
    TABLE_ROWS,
    bound_hash,
    count_changes,
    image_type,
    mask_parts,
    parse_preview,
    parts_json,
    read_parts,
)
from signoff.contracts.approval import Question
from signoff.contracts.canonical_json import json_bytes
from signoff.contracts.preview import (
    AnyPart,
    Code,
    Diff,
    Email,
    File,
    Image,
    Markdown,
    PreviewPart,
    PreviewReference,
    Sql,
    Table,
    Text,
)
from signoff.testing.builders import a_question

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20
EVERY: tuple[AnyPart, ...] = (
    Text(text="a"),
    Markdown(text="# a"),
    Code(text="a = 1", language="python"),
    Diff(name="balance", before="70", after="50"),
    Table(columns=("name", "amount"), rows=(("Ana", 20), ("Bo", None))),
    Email(to=("ana@example.com",), subject="Hello", text="Dear Ana"),
    Sql(statement="DELETE FROM accounts", plan="Seq Scan"),
    Image(data=PNG, text="A chart"),
    File(path="a.txt", size=3, sha256="0" * 64),
)


@table("part", *EVERY)
def test_part_of_each_kind_is_read_back_unchanged(part: AnyPart) -> None:
    parsed = parse_preview(part)
    assert parsed == (part,)
    stored = parts_json(parsed)
    assert stored is not None
    assert read_parts(stored) == (part,)


def test_list_of_parts_is_a_preview() -> None:
    assert parse_preview(list(EVERY)) == EVERY


WRONG: dict[str, object] = {
    "nothing": None,
    "no part": [],
    "a text": "50 EUR",
    "a mapping": {"kind": "text", "text": "a"},
    "a part and a text": [Text(text="a"), "b"],
    "too many parts": [Text(text="a")] * (PARTS + 1),
    "two parts of one name": [Text(name="a", text="1"), Text(name="a", text="2")],
    "a part without its fields": Text.model_construct(),
    "a part of another type": PreviewPart(title="a"),
    "a text that is a number": Text.model_construct(text=[7]),
    "a table with a short row": Table(columns=("a", "b"), rows=(("1",),)),
    "a table with too many rows": Table(columns=("a",), rows=(("1",),) * (TABLE_ROWS + 1)),
    "a table with too many columns": Table(columns=("a",) * (TABLE_COLUMNS + 1), rows=()),
    "an image that is a page": Image(data=b"<svg onload=alert(1)>"),
}


@pytest.mark.parametrize("name", WRONG)
def test_anything_else_is_no_preview(name: str) -> None:
    assert parse_preview(WRONG[name]) is None


@table(
    ("data", "expected"),
    (PNG, "image/png"),
    (b"\xff\xd8\xff\xe0", "image/jpeg"),
    (b"GIF89a", "image/gif"),
    (b"RIFF0000WEBPVP8 ", "image/webp"),
    (b"<svg>", ""),
    (b"RIFF0000WAVEfmt ", ""),
    (b"ftyp0000WEBPVP8 ", ""),
)
def test_media_type_of_an_image_follows_its_first_bytes(data: bytes, expected: str) -> None:
    assert image_type(Image(data=data)) == expected


def test_image_is_base64_in_json() -> None:
    image = Image(data=PNG)
    assert Image.model_validate_json(image.model_dump_json()) == image
    with pytest.raises(ValidationError):
        Image.model_validate({"data": "%%%"})


def test_secrets_are_masked_in_every_text_and_images_are_left_out() -> None:
    secret = "4711-9"
    parts = (
        Text(name=secret, title=f"of {secret}", text=f"pin {secret}"),
        Diff(before=secret, after="x"),
        Table(columns=(secret,), rows=((secret,), (47119,))),
        Email(to=(f"{secret}@example.com",), subject=secret, text=secret),
        Sql(statement=f"SELECT '{secret}'", plan=secret),
        File(path=f"/{secret}", size=1, sha256="0" * 64),
        Image(data=PNG),
    )
    masked = mask_parts(parts, {secret})
    assert [each.kind for each in masked] == ["text", "diff", "table", "email", "sql", "file"]
    shown = str([each.model_dump(exclude={"name"}) for each in masked])
    assert secret not in shown
    assert mask_parts(parts, ()) == parts


def test_number_that_is_a_secret_is_masked() -> None:
    (masked,) = mask_parts((Table(columns=("pin",), rows=((47119,),)),), {"47119"})
    assert masked.model_dump()["rows"] == (("[hidden]",),)


def test_too_large_preview_has_no_json() -> None:
    assert parts_json((Text(text="x" * 300_000),)) is None
    assert parts_json((Text(text="\ud800"),)) is None


def test_hash_covers_the_bound_parts_alone() -> None:
    def hash_of(balance: str, note: str, title: str = "") -> str | None:
        return bound_hash((Text(name="balance", text=balance, title=title), Text(name="note", text=note)), ("balance",))

    assert hash_of("70", "a") == hash_of("70", "b", "Balance") != hash_of("50", "a")
    assert bound_hash(EVERY, ()) == ""


def test_hash_of_a_missing_part_is_none() -> None:
    assert bound_hash(EVERY, ("balance", "rows")) is None


def test_preview_of_the_largest_size_is_accepted() -> None:
    largest = Table(columns=("a",) * TABLE_COLUMNS, rows=(("1",) * TABLE_COLUMNS,) * TABLE_ROWS)
    assert parse_preview(largest) == (largest,)
    assert parse_preview([Text(text="a")] * PARTS) == (Text(text="a"),) * PARTS


def test_preview_of_exactly_the_largest_size_has_json() -> None:
    room = PREVIEW_BYTES - len(json_bytes([Text(text="").model_dump(mode="json")]))
    assert parts_json((Text(text="x" * room),)) is not None
    assert parts_json((Text(text="x" * (room + 1)),)) is None


def test_masking_keeps_names_hashes_numbers_and_empty_cells() -> None:
    parts = (
        Text(name="text", text="a"),
        File(name="000", path="a.txt", size=3, sha256="0" * 64),
        Table(name="True", columns=("a", "b", "c"), rows=((7, True, None),)),
    )
    assert mask_parts(parts, {"text", "000", "True", "None"}) == parts


def test_hash_covers_the_bytes_of_a_picture() -> None:
    one, other = (bound_hash((Image(name="chart", data=PNG + end),), ("chart",)) for end in (b"1", b"2"))
    assert one
    assert other
    assert one != other


def preview_bound(bound: str, **fields: int | str) -> Question:
    return a_question(preview=PreviewReference(bound=bound), **fields)


@table(
    ("questions", "count"),
    ((), 0),
    ((preview_bound("a"),), 0),
    ((preview_bound("a"), preview_bound("a")), 0),
    ((preview_bound("a"), preview_bound("b")), 1),
    ((preview_bound("a"), preview_bound("b"), preview_bound("b"), preview_bound("a")), 2),
    ((preview_bound("a"), preview_bound("b", edit_of=1)), 0),
    ((preview_bound("a"), preview_bound("a", edit_of=1)), 0),
    ((preview_bound("a"), preview_bound("b", kind="in_doubt")), 0),
    ((preview_bound("a"), a_question(), preview_bound("b")), 1),
)
def test_changes_of_the_bound_parts_are_counted_except_after_edits(questions: tuple[Question, ...], count: int) -> None:
    assert count_changes(questions) == count
