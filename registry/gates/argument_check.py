"""Checks a call's arguments: shape, then schema, then the tool's own check, which may correct them once."""

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
# A completion has up to 50 calls, and one activity result holds the text of all their decisions: keep each short.
_WHY_CHARS: Final = 500
_SHOWN_CHARS: Final = 1_500
_PATH_CHARS: Final = 200
_NAMES_SHOWN: Final = 10


@dataclass(frozen=True)
class ArgumentCheck:
    """The result of checking a call's arguments."""

    problems: tuple[SchemaProblem, ...] = ()
    misfits: tuple[SchemaProblem, ...] = ()
    """Problems that do not reject the call."""
    corrected: Correction | None = None
    """Replacement arguments of the tool's own check."""


def shape_problem(call: CallPart, args: Any) -> str:
    """Return, for the model, why these cannot be arguments of any call; "" if they can."""
    if call.malformed:
        return call.malformed
    if not isinstance(args, dict):
        return "the arguments must be one JSON object"
    # Limits before bytes: the count needs no recursion and stops at the first excess value.
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
    """Apply the schema, as far as `validation` says, and the tool's own check. Never raises."""
    misfits = () if tool.validation == "off" else tuple(tool.schema.check(args))
    # Do not call the tool's own check: it may rely on the schema.
    if misfits and tool.validation == "strict":
        return ArgumentCheck(problems=misfits)
    if tool.validate_input is None:
        return ArgumentCheck(misfits=misfits)
    try:
        # A copy: only a `Correction` may change arguments, because it is judged again and reported.
        found = tool.validate_input(copy.deepcopy(args))
        if isinstance(found, Correction):
            # Copy and cut inside the `try`: the objects of a developer's code may fail here too.
            return ArgumentCheck((), misfits, Correction(copy.deepcopy(dict(found.args)), str(found.why)[:_WHY_CHARS]))
        return ArgumentCheck(tuple(_own_problem(*each) for each in found), misfits)
    except Exception as error:
        # The developer's check may fail on a model's input. Then the arguments are not known to be valid.
        return ArgumentCheck((SchemaProblem("", Remark.of("unchecked.by", why=type(error).__name__)),))


def _own_problem(path: object, message: object) -> SchemaProblem:
    return SchemaProblem(str(path), message if isinstance(message, Remark) else str(message))


def apply_correction(proposed: Mapping[str, Any], found: Correction) -> tuple[dict[str, Any], Remark]:
    """Return the corrected arguments, and a note with the changed names and the reason.

    It holds no values: they may be secret.
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
    """A second correction is rejected."""
    checked = check_arguments(tool, args)
    # A correction to the same arguments is final. Otherwise the executed arguments would depend on the number of
    # checks, and the approved digest would differ from the worker's.
    if checked.corrected is None or same_arguments(dict(checked.corrected.args), args):
        return ArgumentCheck(checked.problems, checked.misfits)
    return ArgumentCheck((SchemaProblem("", Remark.of("again")),))


def final_arguments(tool: Tool, args: Any) -> Any:
    """Return the arguments to judge, bind and run: the proposed ones, or the corrected ones."""
    if tool.validate_input is None:
        return args
    # Compute them again from the proposal, also before the run: there is no second copy to trust.
    found = check_arguments(tool, args).corrected
    return args if found is None else dict(found.args)


def problems_text(problems: Sequence[SchemaProblem]) -> str:
    return english(problem_remarks(problems))


def problem_remarks(problems: Sequence[SchemaProblem]) -> tuple[Words, ...]:
    """Return the first few problems and the number of others, in at most about 1,500 characters: paths and a tool's own
    check may repeat the model's input.
    """
    first = tuple(each._replace(path=cut_text(each.path, _PATH_CHARS)).words for each in problems[:PROBLEMS_SHOWN])
    words = english(first)
    shown = first if len(words) <= _SHOWN_CHARS else (cut_text(words, _SHOWN_CHARS),)
    more = len(problems) - PROBLEMS_SHOWN
    return (*shown, Remark.of("more", n=str(more))) if more > 0 else shown


def _differ(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return name not in before or name not in after or not same_arguments(before[name], after[name])
