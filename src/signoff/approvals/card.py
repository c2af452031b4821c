"""Draws the card of a call from the arguments that will run, never from the model's words.

All its text is untrusted and made visible. Each value is truncated separately, so that none displaces another.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from signoff.approvals.argument_rows import (
    DEFAULT,
    NAME_CHARS,
    UNDECLARED,
    ArgumentLeaf,
    default_leaves,
    find,
    format_of,
    has_invisible,
    is_secret,
    leaf_line,
    leaves,
    plural,
    step_from_key,
    suspects_of,
    value_line,
)
from signoff.approvals.card_notes import INVISIBLE, LOOKALIKES, UNDECLARED_TOOL, cut_notes, runner_note, visible_note
from signoff.approvals.confirmation import is_currency, is_money
from signoff.approvals.redaction import redact_arguments, redact_remarks, redact_secrets, secret_values
from signoff.contracts.approval import Card, CardRow, Question
from signoff.contracts.content import Remark, Words
from signoff.contracts.limits import CARD_VALUE_CHARS, EFFECT_CHARS, KIB
from signoff.formats.lookalikes import mark_words, suspect_words
from signoff.formats.replace import replace
from signoff.formats.visible_text import MISSING, cut_visible, one_line
from signoff.languages.remarks import english

CARD_BYTES: Final = 16 * KIB
"""Maximum size of a card as JSON, in bytes."""
AGENT_SAYS_CHARS: Final = 1_000
NOTE_CHARS: Final = 300
TITLE_CHARS: Final = 120
ROWS: Final = 60
ROWS_PER_ARGUMENT: Final = 15
EFFECT_VALUE_CHARS: Final = 80
EFFECT_ARGUMENTS: Final = 3
"""The number of arguments in the effect sentence of a tool without a template."""

_TIGHT_VALUE_CHARS: Final = 120
"""If whole values do not fit, all are truncated to this length before any row is dropped."""
_LEAST_VALUE_CHARS: Final = 12
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_HIDDEN: Final = "hidden"


class _Entry(NamedTuple):
    row: CardRow
    values: int
    """The number of values that the row represents."""


def render_card(
    *,
    effect: str,
    title: str,
    tool: str,
    args: Mapping[str, Any],
    schema: Mapping[str, Any],
    secrets: Collection[str] = (),
    show: Collection[str] | None = None,
    agent_says: str = "",
    notes: Sequence[Words] = (),
    mark: str = "",
    others: Collection[str] = (),
    first: Sequence[str] = (),
) -> Card:
    """The card has at most `CARD_BYTES` of JSON, and states if it does not show everything.

    In `effect`, arguments replace only `{name}` and `{name.of.nested}`. Defaults of omitted arguments follow the call's
    own, marked, as far as there is room. `secrets` are dotted names that are never shown, `show` the dotted names to
    show (`None` for all). The rows of the arguments in `first` come first. `others` are values of secret arguments of
    the turn's other calls. The card's text repeats neither these nor its own secret values. Never raises for JSON
    arguments.
    """
    values = secret_values(args, secrets).union(others)
    proposed, args = args, redact_arguments(args, secrets, values)
    every = sorted(leaves(args, schema, secrets), key=lambda leaf: _place_of(leaf.top, first))
    suspects = suspects_of(every)
    shown = [leaf for leaf in every if _is_shown(leaf, show)]
    entries = _entries(shown, CARD_VALUE_CHARS, suspects)
    visible_notes = [visible_note(each, NOTE_CHARS) for each in redact_remarks(notes, values)]
    # Put this first, because the notes may be truncated.
    possible = (
        LOOKALIKES if suspects else None,
        INVISIBLE if has_invisible(every) else None,
        *visible_notes,
        _repetition_note(proposed, args),
    )
    every_note = tuple(each for each in possible if each)
    sentence = effect_sentence(effect, title=title, tool=tool, args=args, schema=schema, secrets=secrets)
    base = Card(
        effect=sentence,
        agent_says=one_line(redact_secrets(agent_says, values), AGENT_SAYS_CHARS).text,
        note=cut_visible(english(every_note), NOTE_CHARS),
        notes=cut_notes(every_note, NOTE_CHARS),
        mark=mark,
        tool_title=one_line(title or tool, TITLE_CHARS).text,
    )
    left_out = len(every) - len(shown)
    tail = [_remark(f"{left_out} more not shown", "more", left_out)] if left_out else []
    whole = _with_rows(base, entries, tail, ROWS)
    if _size(whole) <= CARD_BYTES:
        return _with_defaults(whole, [leaf for leaf in default_leaves(args, schema, secrets) if _is_shown(leaf, show)])
    return _shrunk(base, _entries(shown, _TIGHT_VALUE_CHARS, suspects), tail)


def draw_card(question: Question, declaration: Mapping[str, Any], args: Mapping[str, Any], mark: str) -> Card:
    """Uses only the tool's declaration and the arguments. `declaration` is the text hashed as `question.definition`."""
    return render_card(
        effect=str(declaration["effect"]),
        title=str(declaration["title"]),
        tool=question.tool,
        args=args,
        schema=declaration["input_schema"],
        # Use both: a question that leaves some out must not show arguments that the tool declares secret.
        secrets=tuple({*question.secrets, *declaration["secrets"]}),
        show=question.show,
        agent_says=question.agent_says,
        # Like everything here, take them from the declaration: a worker must not choose who runs the call. Put them
        # first, because notes may be truncated.
        notes=(*_declared_notes(declaration, question.actor), *question.notes),
        mark=mark,
        first=first_arguments(declaration),
    )


def first_arguments(declaration: Mapping[str, Any]) -> Sequence[str]:
    """Return the arguments at the top of a tool's cards, or none for the order of the call."""
    first: Sequence[str] = declaration.get("card", {}).get("first", ())
    return first


def _place_of(top: str, first: Sequence[str]) -> int:
    return first.index(top) if top in first else len(first)


class Amount(NamedTuple):
    """The amount of money that a card shows first, "" without one."""

    value: str
    """In digits, as in the arguments."""
    currency: str


NO_AMOUNT: Final = Amount("", "")


def card_amount(question: Question, declaration: Mapping[str, Any], args: Mapping[str, Any]) -> Amount:
    """Draws only the short values at the top of the arguments."""
    secrets = {*question.secrets, *declaration["secrets"]}
    schema, first = declaration["input_schema"], first_arguments(declaration)
    small = {name: value for name, value in args.items() if _is_small(value)}
    own = sorted(leaves(small, schema, secrets), key=lambda leaf: _place_of(leaf.top, first))
    defaults = [leaf for leaf in default_leaves(args, schema, secrets) if _is_small(leaf.value)]
    return amount_of([_row(leaf, NAME_CHARS, ()) for leaf in (*own, *defaults) if _is_shown(leaf, question.show)])


def amount_of(rows: Sequence[CardRow]) -> Amount:
    amount = next((row.value for row in rows if is_money(row) and not row.secret and not row.cut), "")
    return Amount(amount, next((row.value for row in rows if is_currency(row)), "") if amount else "")


def _is_small(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and len(value) <= NAME_CHARS)


def _declared_notes(declaration: Mapping[str, Any], actor: str) -> list[Remark]:
    external = [runner_note(actor)] if declaration.get("runs") == "external" else []
    return [*external, *([UNDECLARED_TOOL] if declaration.get("undeclared") else [])]


def effect_sentence(
    template: str,
    *,
    title: str,
    tool: str,
    args: Mapping[str, Any],
    schema: Mapping[str, Any],
    secrets: Collection[str],
) -> str:
    """Return the action in one sentence of at most `EFFECT_CHARS`.

    A missing argument is its default in `schema`, or an em dash. A secret one is `hidden`. An argument is never read as
    a template. Codes follow look-alike letters.
    """
    args = redact_arguments(args, secrets, secret_values(args, secrets))
    defaulted = {leaf.top: leaf.value for leaf in default_leaves(args, schema, secrets)} | dict(args)
    sentence = _filled_sentence(template, title or tool, args, defaulted, secrets)
    if sentence.isascii():
        return sentence
    suspects = suspects_of(leaves(args, {}, secrets))
    return cut_visible(mark_words(sentence, suspects), EFFECT_CHARS) if suspects else sentence


def _filled_sentence(
    template: str, name: str, args: Mapping[str, Any], defaulted: Mapping[str, Any], secrets: Collection[str]
) -> str:
    if not template.strip():
        return _plain_sentence(name, args, secrets)
    parts = _PLACEHOLDER.split(template)
    words, names = parts[::2], parts[1::2]
    room = (EFFECT_CHARS - sum(map(len, words))) // max(1, len(names))
    limit = max(_LEAST_VALUE_CHARS, min(EFFECT_VALUE_CHARS, room))
    filled = [_argument(name.strip(), defaulted, secrets, limit) for name in names]
    pieces = [one_line(words[0], EFFECT_CHARS).text]
    for value, word in zip(filled, words[1:], strict=True):
        pieces += [value, one_line(word, EFFECT_CHARS).text]
    return _cut_sentence(pieces)


def _repetition_note(proposed: Mapping[str, Any], shown: Mapping[str, Any]) -> Remark | None:
    names = [] if proposed is shown else [name for name in proposed if proposed[name] != shown[name]]
    named = ", ".join(f"`{one_line(name, NAME_CHARS).text}`" for name in names[:EFFECT_ARGUMENTS])
    more = len(names) - EFFECT_ARGUMENTS
    # State it: the proposer of the call chose the secret, and therefore also what else is hidden from approvers.
    if more > 0:
        return Remark.of("repeated.more", names=named, n=str(more))
    return Remark.of("repeated", names=named) if names else None


def _plain_sentence(name: str, args: Mapping[str, Any], secrets: Collection[str]) -> str:
    subject = one_line(name, TITLE_CHARS).text
    first, more = list(args)[:EFFECT_ARGUMENTS], len(args) - EFFECT_ARGUMENTS
    phrases = [f"{one_line(key, 20).text} {_argument(step_from_key(key), args, secrets, 30)}" for key in first]
    phrases += [f"{more} more"] if more > 0 else []
    return _cut_sentence([f"{subject}: " if phrases else subject, ", ".join(phrases)])


def _argument(name: str, args: Mapping[str, Any], secrets: Collection[str], limit: int) -> str:
    if is_secret(name, secrets):
        return _HIDDEN
    value = find(args, name, None)
    return MISSING if value is None else value_line(value, limit).text


def _cut_sentence(pieces: Sequence[str]) -> str:
    sentence = "".join(pieces)
    if len(sentence) <= EFFECT_CHARS:
        return sentence
    cut = sentence[: EFFECT_CHARS - 1]
    # Half a mark would read as text.
    return (cut[: cut.rindex("⟦")] if cut.rfind("⟦") > cut.rfind("⟧") else cut) + "…"


def _is_shown(leaf: ArgumentLeaf, show: Collection[str] | None) -> bool:
    if show is None:
        return True
    # Include the dot: otherwise `to` would also show `total`.
    return any(
        path == name or path.startswith(f"{name}.") for path in (leaf.name, leaf.dotted, leaf.bare) for name in show
    )


def _entries(shown: Sequence[ArgumentLeaf], limit: int, suspects: Collection[str]) -> list[_Entry]:
    """Rows without room on the card are counted but not drawn: a hostile call has thousands."""
    entries: list[_Entry] = []
    for top, group in groupby(shown, key=lambda leaf: leaf.top):
        values = list(group)
        room = ROWS - len(entries)
        # Each argument has its own limit, so that one long list cannot displace the others.
        drawn = values[:ROWS_PER_ARGUMENT]
        entries += [_Entry(_row(leaf, limit, suspects) if at < room else _UNDRAWN, 1) for at, leaf in enumerate(drawn)]
        more = len(values) - ROWS_PER_ARGUMENT
        if more > 0:
            named = one_line(top, NAME_CHARS).text
            entries.append(_Entry(_remark(f"{more} more of {named} not shown", "more_of", more, named), more))
    return entries


def _row(leaf: ArgumentLeaf, limit: int, suspects: Collection[str]) -> CardRow:
    line = leaf_line(leaf, limit, suspects)
    text = _hidden_text(leaf.value) if leaf.secret else line.text
    label = one_line(leaf.label, NAME_CHARS).text
    name = one_line(leaf.name, NAME_CHARS)
    return CardRow(
        name=name.text,
        # Our own mark, after a text in which it cannot be forged.
        label=label if leaf.declared else f"{mark_words(label, suspect_words([label]))} {UNDECLARED}",
        value=text,
        secret=leaf.secret,
        # The call chooses keys as well as values: a truncated key could hide anything.
        cut=name.cut or (line.cut and not leaf.secret),
        length=line.length,
        format=one_line(format_of(leaf), NAME_CHARS).text,
    )


def _with_defaults(card: Card, defaults: Sequence[ArgumentLeaf]) -> Card:
    """Defaults are no values of the call: none is ever missing."""
    rows = []
    for leaf in defaults[: max(0, ROWS - len(card.rows))]:
        row = _row(leaf, CARD_VALUE_CHARS, ())
        if not row.cut:
            label = f"{mark_words(row.label, suspect_words([row.label]))} {DEFAULT}"
            rows.append(replace(row, label=label))
    extended = replace(card, rows=(*card.rows, *rows))
    return extended if _size(extended) <= CARD_BYTES else card


def _hidden_text(value: Any) -> str:
    return f"{_HIDDEN}, {plural(len(value), 'character')}" if isinstance(value, str) else _HIDDEN


def _remark(text: str, kind: str, count: int, label: str = "") -> CardRow:
    """An empty name marks rows by the card itself. `kind` and `count` encode the English `text`."""
    return CardRow(name="", label=label, value=text, format=kind, length=count)


_UNDRAWN: Final = _remark("", "", 0)


def _shrunk(base: Card, entries: Sequence[_Entry], tail: Sequence[CardRow]) -> Card:
    kept = min(len(entries), ROWS)
    card = _with_rows(base, entries, tail, kept)
    while kept and _size(card) > CARD_BYTES:
        kept -= 1
        card = _with_rows(base, entries, tail, kept)
    return card


def _with_rows(base: Card, entries: Sequence[_Entry], tail: Sequence[CardRow], kept: int) -> Card:
    missing = sum(entry.values for entry in entries[kept:])
    rows = [entry.row for entry in entries[:kept]] + list(tail)
    if missing:
        values = "1 value is" if missing == 1 else f"{missing} values are"
        rows.append(_remark(f"this card is incomplete: {values} missing", "missing", missing))
    return replace(base, rows=tuple(rows))


def _size(card: Card) -> int:
    return len(card.model_dump_json().encode())
