"""Compares a case with its replay."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from signoff.contracts.approval import Terms
from signoff.contracts.canonical_json import same_arguments
from signoff.evaluation.case_file import DifferenceKind, EvaluationCase, RecordedCall
from signoff.evaluation.case_player import PlayedCall, PlayResult, call_key
from signoff.registry.actor import Actor, instructions_hash


@dataclass(frozen=True)
class Difference:
    """One difference from the recorded turn."""

    kind: DifferenceKind
    forbidden: bool
    was: str
    now: str
    call: str = ""
    tool: str = ""
    why: str = ""
    """The present rule, or the gate's message."""


def find_differences(case: EvaluationCase, played: PlayResult, actor: Actor) -> tuple[Difference, ...]:
    """Return differences with calls in order."""
    found: list[Difference] = []
    was, now = case.recorded.instructions, instructions_hash(actor, case.route, case.step)
    if was and was != now and case.prompt_hash_mismatch != "ignore":
        found.append(Difference("prompt", case.prompt_hash_mismatch == "error", was, now, why="other instructions"))
    forbidden = set(case.forbid)
    recorded = [call for completion in case.completions for call in completion.calls]
    for before, after in _pairs(recorded, played.calls):
        found += _call_differences(before, after, forbidden)
    if case.ending != played.ending:
        found.append(Difference("ending", "ending" in forbidden, case.ending, played.ending))
    return tuple(found)


def _pairs(
    recorded: Sequence[RecordedCall], played: Sequence[PlayedCall]
) -> Iterable[tuple[RecordedCall | None, PlayedCall | None]]:
    """Yield each recorded call with a replayed one of the same effect, else of the same tool, else alone."""
    left = list(played)
    partners: dict[int, PlayedCall] = {}
    for same in (_does_the_same, _has_the_tool):
        for index, call in enumerate(recorded):
            partner = None if index in partners else next((each for each in left if same(call, each)), None)
            if partner is not None:
                partners[index] = partner
                left.remove(partner)
    yield from ((call, partners.get(index)) for index, call in enumerate(recorded))
    yield from ((None, call) for call in left)


def _does_the_same(recorded: RecordedCall, played: PlayedCall) -> bool:
    return call_key(recorded.tool, recorded.args) == call_key(played.tool, played.args)


def _has_the_tool(recorded: RecordedCall, played: PlayedCall) -> bool:
    return recorded.tool == played.tool


def _call_differences(
    before: RecordedCall | None, after: PlayedCall | None, forbidden: Collection[str]
) -> Iterable[Difference]:
    if after is None and before is not None:
        yield Difference("missing", "missing" in forbidden, before.verdict, "", before.call, before.tool)
    elif before is None and after is not None:
        yield Difference("new", "new" in forbidden, "", after.verdict, after.call, after.tool, _words(after))
    elif before is not None and after is not None:
        named = (after.call, after.tool, _words(after))
        if not _does_the_same(before, after):
            yield Difference("changed", "changed" in forbidden, *_arguments(before, after), *named[:2])
        if before.verdict != after.verdict:
            yield Difference("verdict", "verdict" in forbidden, before.verdict, after.verdict, *named)
        elif before.verdict == "ask" and before.terms is not None and after.terms is not None:
            was, now = _describe_terms(before.terms), _describe_terms(after.terms)
            if was != now:
                yield Difference("terms", "terms" in forbidden, was, now, *named)


def _arguments(before: RecordedCall, after: PlayedCall) -> tuple[str, str]:
    sides = (before.args, after.args)
    parts = {name: [{name: side[name]} if name in side else {} for side in sides] for name in {**sides[0], **sides[1]}}
    names = [name for name, (one, other) in parts.items() if not same_arguments(one, other)]
    was, now = (", ".join(f"{name}={side[name]!r}" for name in names if name in side) for side in sides)
    return was, now


def _describe_terms(terms: Terms) -> str:
    return f"{terms.quorum} of {', '.join(sorted(terms.approvers))}"


def _words(call: PlayedCall) -> str:
    return call.why if call.gate or not call.rule else f"{call.rule}: {call.why}" if call.why else call.rule
