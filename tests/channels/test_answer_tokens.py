# ruff: noqa: RUF001 (marks of many alphabets)

from tables import table

from signoff.channels.answer_text.answer_tokens import LINE_CHARS, AnswerToken, tokens

_SHORT = {"word": "", "code": "#", "pause": "", "ask": "", "good": "+", "bad": "-", "odd": "!"}


def split(line: str) -> list[str]:
    """Return pieces with a mark: `#` a code, `+` good, `-` bad, `!` odd."""
    return [f"{_SHORT[piece.kind]}{piece.text}" for piece in tokens(line)]


@table(
    ("line", "pieces"),
    ("Yes, please!", ["yes", ",", "please", "!"]),
    ("yes;no", ["yes", ";", "no"]),
    ("yes/no", ["yes", "!/", "no"]),
    ("j’approuve", ["j'approuve"]),
    ("j`approuve", ["j'approuve"]),
    ("'yes'", ["!'", "!yes'"]),
    ("yes'", ["!yes'"]),
    ("ｙｅｓ", ["yes"]),
    ("e\u0301te\u0301", ["ete"]),
    ("y\u0338", ["y", "!\u0338"]),
    ("½", ["1", "!⁄", "2"]),
    ("yes...", ["!yes..."]),
    ("yes..", ["!yes.."]),
    ("yes…", ["!yes…"]),
    ("vas-y!", ["vas", "y", "!"]),
    ("(vas-y", ["!(", "vas", "y"]),
    ("http://a.b/yes", ["!http://a.b/yes"]),
    ("yes\u037e", ["yes", "?"]),
    ("yes⁇", ["yes", "?"]),
    ("", []),
)
def test_punctuation_separates_words(line: str, pieces: list[str]) -> None:
    assert split(line) == pieces


def test_capital_letter_is_remembered() -> None:
    assert tokens("Ana bo") == (AnswerToken("word", "ana", capital=True), AnswerToken("word", "bo"))


@table("mark", ">", "|", "+", "-", "!")
def test_list_item_quotation_or_negation_is_an_odd_token(mark: str) -> None:
    assert tokens(f"  {mark} yes")[0] == AnswerToken("odd", mark)
    assert tokens(f"{mark}yes")[0] == AnswerToken("odd", mark)
    assert tokens(f"yes {mark}")[0] == AnswerToken("word", "yes")


def test_slash_starts_a_command() -> None:
    assert split("/deny") == ["deny"]
    assert split("//deny") == ["!/", "deny"]
    assert split("no /deny") == ["no", "!/", "deny"]


@table(
    ("line", "pieces"),
    ("**Yes**", ["yes"]),
    ("**yes**.", ["yes"]),
    ("*yes, please*!", ["yes", ",", "please"]),
    ("_yes_", ["yes"]),
    ("__yes__", ["yes"]),
    ("*yes* no", ["yes", "no"]),
    ("no **yes**,", ["no", "yes", ","]),
    ("no __yes__", ["no", "yes"]),
    ("**approve** K7Q-2FM", ["approve", "#K7Q2FM"]),
    ("__yes, please__", ["yes", ",", "please"]),
    ("_yes, please_", ["yes", ",", "please"]),
    ("no _yes_", ["no", "yes"]),
    ("no *a*b*", ["no", "ab", "!*"]),
    ("*yes, no*X", ["!*", "yes", ",", "no", "!*", "x"]),
    ("no *yes*X", ["no", "!*", "yes", "!*", "x"]),
    ("*yes", ["!*", "yes"]),
    ("yes*", ["yes", "!*"]),
    ("no *yes", ["no", "!*", "yes"]),
    ("*", ["!*"]),
    ("**", ["!*", "!*"]),
    ("no **", ["no", "!*", "!*"]),
    ("no __", ["no", "!_", "!_"]),
    ("*a* b*", ["a", "b", "!*"]),
)
def test_paired_bold_marks_are_dropped_and_single_ones_are_odd(line: str, pieces: list[str]) -> None:
    assert split(line) == pieces


@table(
    ("line", "pieces"),
    ("👍", ["+👍"]),
    ("👍🏽", ["+👍"]),
    ("👍\ufe0f", ["+👍"]),
    ("👎🏿!", ["-👎", "!"]),
    ("yes👍🏽ok", ["yes", "+👍", "ok"]),
    ("🏽", ["!🏽"]),
    ("\ufe0f", ["!\ufe0f"]),
    ("x🏽", ["x", "!🏽"]),
    ("🙃", ["!🙃"]),
    (":)", ["+:)"]),
    ("yes :-).", ["yes", "+:-)"]),
    (":) !", ["+:)", "!"]),
    (":)X", [":", "!)", "x"]),
    ("👍🏽🏽", ["+👍"]),
    (":):)", [":", "!)", ":", "!)"]),
    (":+1:!", ["+👍"]),
    (":+1:X", [":", "!+", "1", ":", "x"]),
)
def test_known_emoji_have_a_meaning(line: str, pieces: list[str]) -> None:
    assert split(line) == pieces


@table(
    ("line", "pieces"),
    ("yes\u200b", ["yes"]),
    ("yes\u200b\ufeff", ["yes"]),
    ("\u200b", []),
    ("\u200byes", ["!\u200b", "yes"]),
    ("yes\u202e", ["yes", "!\u202e"]),
    ("yes\u202e\u200b", ["yes", "!\u202e"]),
    ("yes\u202d", ["yes", "!\u202d"]),
    ("yes\u2067", ["yes", "!\u2067"]),
)
def test_invisible_character_is_ignored_only_after_a_word(line: str, pieces: list[str]) -> None:
    assert split(line) == pieces


@table(
    ("line", "pieces"),
    ("K7Q-2FM", ["#K7Q2FM"]),
    ("k7q2fm", ["#K7Q2FM"]),
    ("K7Q\u20112FM", ["#K7Q2FM"]),
    ("Ｋ７Ｑ-2FM", ["#K7Q2FM"]),
    ("(K7Q-2FM),", ["#K7Q2FM", ","]),
    ("#K7Q-2FM", ["#K7Q2FM"]),
    ("K7Q-2FM?", ["#K7Q2FM", "?"]),
    ("K7Q-2FM?:", ["#K7Q2FM", "?", ":"]),
    ("K7Q-2FM.?", ["#K7Q2FM", "?"]),
    ("K7Q-2FX", ["#K7Q2FX"]),
    ("X “K7Q-2FM”", ["x", "#K7Q2FM"]),
    ("K7Q-2FM!", ["#K7Q2FM", "!"]),
    ("K7Q-2FM;", ["#K7Q2FM", ";"]),
    ("K7Q-2FM)", ["#K7Q2FM"]),
    ("“approve K7Q-2FM”", ["approve", "#K7Q2FM"]),
    ("«approve» “K7Q-2FM”", ["approve", "#K7Q2FM"]),
    ("“approve”", ["!“", "approve", "!”"]),
    ("K7Q--2FM", ["k7q", "-", "-", "2fm"]),
    ("K7Q-2FMX", ["k7q", "-", "2fmx"]),
    ("XK7Q-2FM", ["xk7q", "-", "2fm"]),
)
def test_code_is_recognised_in_any_surroundings(line: str, pieces: list[str]) -> None:
    assert split(line) == pieces


def test_too_long_line_is_one_odd_token() -> None:
    assert split("a" * LINE_CHARS) == ["a" * LINE_CHARS]
    assert tokens("a" * LINE_CHARS + "b") == (AnswerToken("odd", "a" * LINE_CHARS),)
