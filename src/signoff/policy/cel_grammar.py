"""Loads the second engine's parser from tables that are part of the package.

lark would compute the tables from CEL's grammar at each start, which takes a third of the time to read a manifest.
`python -m tools.cel_grammar` writes them again after a new release of lark or celpy.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

import lark
from celpy.celparser import CELParser
from lark.grammar import Rule
from lark.lexer import TerminalDef

TABLES: Final = "cel_grammar.json"
_CALLBACKS: Final = {"IDENT": CELParser.ambiguous_literals}


def load_parser() -> lark.Lark | None:
    """Return `None` if the tables are for another grammar or another lark."""
    tables = json.loads(files("signoff.policy").joinpath(TABLES).read_bytes(), object_pairs_hook=_with_numbers)
    if tables["made_of"] != _made_of():
        return None
    parser: lark.Lark = lark.Lark._load_from_dict(  # type: ignore[no-untyped-call]
        tables["data"], tables["memo"], lexer_callbacks=_CALLBACKS, tree_class=lark.Tree
    )
    return parser


def make_tables() -> dict[str, Any]:
    """Compute the tables from CEL's grammar, with celpy's options."""
    parser = lark.Lark(
        _grammar(),
        parser="lalr",
        start="expr",
        g_regex_flags=re.M,
        propagate_positions=True,
        maybe_placeholders=False,
        priority="invert",
    )
    data, memo = parser.memo_serialize([TerminalDef, Rule])
    return {"made_of": _made_of(), "data": data, "memo": memo}


def _made_of() -> Mapping[str, str]:
    return {"lark": lark.__version__, "grammar": hashlib.sha256(_grammar().encode()).hexdigest()}


def _grammar() -> str:
    return files("celpy").joinpath("cel.lark").read_text(encoding="utf-8")


def _with_numbers(pairs: list[tuple[str, Any]]) -> dict[str | int, Any]:
    """JSON writes the numbers of states and tokens as texts."""
    return {int(key) if key.isdecimal() else key: value for key, value in pairs}
