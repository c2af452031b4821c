"""Checks the arguments of a call: their shape, the tool's schema, then the tool's own check, which may correct them
once.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from signoff.contracts.canonical_json import NotCanonical, canonical_json, same_arguments
from signoff.contracts.content import Remark, Words
from signoff.contracts.limits import ARGUMENTS_BYTES, KIB
from signoff.contracts.message import CallPart
from signoff.formats.bounds import SEND_IN_PARTS, bounds_problem, bounds_remedy
from signoff.formats.json_schema import SchemaProblem
from signoff.formats.nearest_name import cut_text, quote_name
from signoff.languages.remarks import english
from signoff.registry.hooks import Correction
from signoff.registry.tool import Tool

PROBLEMS_SHOWN: Final = 5
# A batch has up to 50 calls, and the words of all its gate decisions are one activity result: each has to be short.
_WHY_CHARS: Final = 500
_SHOWN_CHARS: Final = 1_500
_PATH_CHARS: Final = 200
_NAMES_SHOWN: Final = 10


@dataclass(frozen=True)
class ArgumentCheck:
    """The result of checking a call's arguments."""

    problems: tuple[SchemaProblem, ...] = ()
    """Problems that refuse the call."""
    misfits: tuple[SchemaProblem, ...] = ()
    """Problems that are let through."""
    corrected: Correction | None = None
    """The arguments in place of those given, if the tool's own check corrected them."""


def shape_problem(call: CallPart, args: Any) -> str:
    """Returns why these are no arguments of any call, for the model; "" if they may be."""
    if call.malformed:
        return call.malformed
    if not isinstance(args, dict):
        return "the arguments must be one JSON object"
    # Bounds before bytes: they are counted without recursion and stop at the first value that is too many.
    why = bounds_problem(args)
    if why:
        return f"the arguments hold {why}; {bounds_remedy(why)}"
    try:
        size = len(canonical_json(args))
    except NotCanonical:
        return "the arguments hold a number or text that JSON cannot carry safely; send it as a string"
    if size > ARGUMENTS_BYTES:
        return f"the arguments are larger than {ARGUMENTS_BYTES // KIB} KiB; {SEND_IN_PARTS}"
    return ""


def check_arguments(tool: Tool, args: Any) -> ArgumentCheck:
    """Checks arguments by the schema, as far as the tool's `validation` applies it, and by the tool's own check.

    Never raises.
    """
    misfits = () if tool.validation == "off" else tuple(tool.schema.check(args))
    # The tool's own check is not even called: it may rely on what the schema says.
    if misfits and tool.validation == "strict":
        return ArgumentCheck(problems=misfits)
    if tool.validate_input is None:
        return ArgumentCheck(misfits=misfits)
    try:
        # A copy: only a `Correction` changes arguments, as that is judged again and told of.
        found = tool.validate_input(copy.deepcopy(args))
        if isinstance(found, Correction):
            # Copied and cut within the `try`: what a developer's code returns may fail at that as well.
            return ArgumentCheck((), misfits, Correction(copy.deepcopy(dict(found.args)), str(found.why)[:_WHY_CHARS]))
        return ArgumentCheck(tuple(_own_problem(*each) for each in found), misfits)
    except Exception as error:
        # The developer's check may fail on what a model sends: then the arguments are not known to be valid.
        return ArgumentCheck((SchemaProblem("", Remark.of("unchecked.by", why=type(error).__name__)),))


def _own_problem(path: object, message: object) -> SchemaProblem:
    return SchemaProblem(str(path), message if isinstance(message, Remark) else str(message))


def apply_correction(proposed: Mapping[str, Any], found: Correction) -> tuple[dict[str, Any], Remark]:
    """Returns the corrected arguments, and a note that names what changed and why, without values: they may be
    secret.
    """
    args = dict(found.args)
    names = sorted(name for name in {*proposed, *args} if _differ(name, proposed, args))
    return args, _correction_note(names, found.why)


def _correction_note(names: Sequence[str], why: str) -> Remark:
    if not names:
        return Remark.of("corrected.none.why", why=why) if why else Remark.of("corrected.none")
    named, more = ", ".join(map(quote_name, names[:_NAMES_SHOWN])), str(len(names) - _NAMES_SHOWN)
    if len(names) <= _NAMES_SHOWN:
        return Remark.of("corrected.why", names=named, why=why) if why else Remark.of("corrected", names=named)
    if why:
        return Remark.of("corrected.more.why", names=named, n=more, why=why)
    return Remark.of("corrected.more", names=named, n=more)


def check_corrected(tool: Tool, args: Any) -> ArgumentCheck:
    """Checks corrected arguments the same way: once is enough, so they must be right now."""
    checked = check_arguments(tool, args)
    # Corrected to themselves they are settled. Otherwise what runs would hang on how often it was checked, and the
    # digest that people approve would not be the one computed where the tool runs.
    if checked.corrected is None or same_arguments(dict(checked.corrected.args), args):
        return ArgumentCheck(checked.problems, checked.misfits)
    return ArgumentCheck((SchemaProblem("", Remark.of("again")),))


def final_arguments(tool: Tool, args: Any) -> Any:
    """Returns the arguments with which a call is judged, bound and run: those given, or the corrected ones."""
    if tool.validate_input is None:
        return args
    # Worked out anew from what was proposed, also where the call runs: there is no second copy to be trusted.
    found = check_arguments(tool, args).corrected
    return args if found is None else dict(found.args)


def problems_text(problems: Sequence[SchemaProblem]) -> str:
    """Writes the problems for the model, as `problem_remarks`."""
    return english(problem_remarks(problems))


def problem_remarks(problems: Sequence[SchemaProblem]) -> tuple[Words, ...]:
    """Returns the first few problems, and how many more there are.

    At most some 1,500 characters: paths, and the words of a tool's own check, may repeat what the model sent.
    """
    first = tuple(each._replace(path=cut_text(each.path, _PATH_CHARS)).words for each in problems[:PROBLEMS_SHOWN])
    words = english(first)
    shown = first if len(words) <= _SHOWN_CHARS else (cut_text(words, _SHOWN_CHARS),)
    more = len(problems) - PROBLEMS_SHOWN
    return (*shown, Remark.of("more", n=str(more))) if more > 0 else shown


def _differ(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return name not in before or name not in after or not same_arguments(before[name], after[name])
