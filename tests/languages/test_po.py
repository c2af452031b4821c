import gettext
import io

import pytest
from tables import table

from signoff.languages.po import PoError, compile_po, read_po

HEADER = """# A language.
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"X-Language-Name: Xx\\n"
"Plural-Forms: nplurals=2; plural=n != 1;\\n"

"""
"""Seven lines."""
NEEDED = "x.po:2: the header needs `Plural-Forms: nplurals=...; plural=...;`"
GOOD = (
    HEADER
    + """#. A remark.
#, python-brace-format
msgctxt "a"
msgid "one {n}"
msgid_plural ""
"many "
"{n}"
msgstr[0] "\\"un\\" {n}"
msgstr[1] "\\\\ {n}"

#~ msgctxt "gone"
#~ msgid "gone"
#~ msgstr "weg"
"""
)


def test_entry_has_key_english_text_and_forms() -> None:
    _, entry = read_po(GOOD, "x.po")
    assert (entry.key, entry.words, entry.plural, entry.line) == ("a", "one {n}", "many {n}", 10)
    assert entry.forms == ('"un" {n}', "\\ {n}")


def test_file_may_end_without_a_line_break() -> None:
    assert read_po(f'{HEADER}msgctxt "a"\nmsgid "one"\nmsgstr "un"', "x.po")[-1].forms == ("un",)


def test_compiled_file_is_readable_by_the_standard_library() -> None:
    found = gettext.GNUTranslations(io.BytesIO(compile_po(GOOD, "x.po")))
    assert [found.npgettext("a", "one {n}", "many {n}", n) for n in (1, 2)] == ['"un" {n}', "\\ {n}"]


@table("left_out", 'msgstr ""', '#, fuzzy\nmsgstr "un"', 'msgstr "un"')
def test_empty_or_fuzzy_text_is_missing(left_out: str) -> None:
    fuzzy, _, words = left_out.rpartition("\n")
    found = read_po(f'{HEADER}{fuzzy}\nmsgctxt "a"\nmsgid "one"\n{words}\n', "x.po")
    assert len(found) == (2 if left_out == 'msgstr "un"' else 1)


@table(
    ("broken", "expected"),
    ('msgctxt "a"\nmsgid "one\nmsgstr "un"\n', "x.po:9: this is no text"),
    ('"a"\n', "x.po:8: this is no text"),
    ('msgctxt "a"\nmsgid "one"\nmsgstr "un" more\n', "x.po:10: this is no text"),
    ('msgctxt "a"\nmsgid "one"\n\nmsgstr "un"\n', "x.po:10: this is no text"),
    ('msgctxt "a"\nmsgstr "un"\n', "x.po:9: this is no text"),
    ('msgctxt "a"\nmsgid "one"\n', "x.po:10: this is no text"),
    ('msgctxt "a"\nmsgid "one"\nmsgstr "un"\nmsgid "two"\nwhat is this\n', "x.po:12: this is no text"),
    ('\n\nmsgid "one"\nmsgstr "un"\n', "x.po:10: `msgctxt` with the key of the text is missing"),
    ('msgctxt "a"\nmsgid "one"\nmsgstr "\\q"\n', "x.po:8: `\\q` is no escape of `.po` files"),
    (2 * 'msgctxt "a"\nmsgid "one"\nmsgstr "un"\n', "x.po:11: `a` is there twice"),
    (
        'msgctxt "a"\nmsgid "1"\nmsgid_plural "n"\nmsgstr[0] "un"\n',
        "x.po:8: `a` has 1 of the 2 forms of `Plural-Forms`",
    ),
    ('msgctxt "a"\nmsgid "1"\nmsgid_plural "n"\nmsgstr[1] "un"\n', "x.po:8: `a` needs `msgstr[0]`, `msgstr[1]`"),
    ('msgctxt "a"\nmsgid "1"\nmsgid_plural "n"\nmsgstr "un"\n', "x.po:8: `a` needs `msgstr[0]`, `msgstr[1]`"),
    ('msgctxt "a"\nmsgid "one"\nmsgstr[0] "un"\n', "x.po:8: `a` needs one `msgstr`"),
)
def test_error_is_reported_with_its_line(broken: str, expected: str) -> None:
    with pytest.raises(PoError) as caught:
        read_po(HEADER + broken, "x.po")
    assert str(caught.value).startswith(expected)
    assert "\n" not in str(caught.value)


@table(
    ("written", "expected"),
    ("", "x.po:1: the header is missing"),
    ('msgctxt "a"\nmsgid "one"\nmsgstr "un"\n', "x.po:1: the header is missing"),
    (HEADER.replace("UTF-8", "latin-1"), "x.po:2: the header needs `Content-Type: text/plain; charset=UTF-8`"),
    (HEADER.replace("Xx", ""), "x.po:2: the header needs `X-Language-Name: ...`"),
    (HEADER.replace("Plural", "Prural"), NEEDED),
    (HEADER.replace("n != 1", "n + 1"), NEEDED),
    (HEADER.replace("n != 1", "n % 0"), NEEDED),
    (HEADER.replace("n != 1", "n !!"), NEEDED),
)
def test_file_starts_with_its_header(written: str, expected: str) -> None:
    with pytest.raises(PoError, match="header") as caught:
        read_po(written, "x.po")
    assert str(caught.value) == expected
