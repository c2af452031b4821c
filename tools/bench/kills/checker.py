"""The checker: reads the journals of a run and names every fault, after the processes have ended."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tools.bench.kills.journal import (
    EFFECTS,
    NEMESIS,
    RECORD,
    WORKLOAD,
    Accepted,
    Answered,
    Answering,
    Effect,
    Ended,
    Entry,
    Planned,
    Proposed,
    Reported,
    Struck,
    Used,
    Verified,
    Withdrawn,
    read_entries,
)

_PERMITTED: Final = ("ended", "ok", "in_doubt")
"""The ends of a call that may have had an effect."""
_COUNTED: Final = ("accepted", "counted")
_STATES: Final = {"approved": "approved", "denied": "denied", "happened": "happened"}
"""The state in which a verdict leaves its question."""


@dataclass(frozen=True)
class Fault:
    """A promise that the run broke."""

    kind: str
    call: str
    words: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.call}: {self.words}"


@dataclass
class _Call:
    proposed: Proposed
    id: str = ""
    effects: list[Effect] = field(default_factory=list)
    uses: list[Used] = field(default_factory=list)
    answering: list[Answering] = field(default_factory=list)
    reported: list[Reported] = field(default_factory=list)
    withdrawn: bool = False
    ended: Ended | None = None
    record: list[dict[str, Any]] = field(default_factory=list)

    @property
    def acts(self) -> list[dict[str, Any]]:
        """The tool's own arguments, or the arguments in each attempt's permit."""
        tries = {each.attempt: each.args for each in self.uses}
        return [each.args for each in self.effects] + list(tries.values())

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return the entries as the services wrote them, without the turn's own claims."""
        return [
            {**each["data"], "subject": each["subject"]}
            for each in self.record
            if each["kind"] == kind and not each["key"].startswith("turn-says/")
        ]

    def endings(self, approval: str, revision: int) -> set[str]:
        return {
            str(each["data"]["state"])
            for each in self.record
            if each["kind"] == "ending"
            and (each["data"].get("approval"), each["data"].get("revision")) == (approval, revision)
        }


@dataclass
class RunJournals:
    """Every entry of a run, and the exported record by stream."""

    entries: list[Entry]
    record: list[dict[str, Any]] = field(default_factory=list)

    def figures(self) -> str:
        count = Counter(type(each).__name__ for each in self.entries)
        struck = Counter(f"{each.victim} {each.act}" for each in self.entries if isinstance(each, Struck))
        ends = Counter(each.state for each in self.entries if isinstance(each, Ended))
        doubts = {
            (each.approval, each.revision)
            for each in self.entries
            if isinstance(each, Answering) and each.question == "in_doubt"
        }
        kills = sum(number for name, number in struck.items() if name.endswith(" killed"))
        return (
            f"{kills} kills ({_listed(struck)}); {count['Proposed']} calls, {count['Effect']} effects, "
            f"{count['Used']} permits handed out, {count['Answering']} answers, {len(doubts)} calls in doubt, "
            f"{len(self.record)} records; ends: {_listed(ends)}"
        )


def _listed(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counter.items())) or "none"


def read_run(folder: Path) -> RunJournals:
    entries = [each for name in (WORKLOAD, NEMESIS, EFFECTS) for each in read_entries(folder / name)]
    record = folder / RECORD
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    return RunJournals(entries, [each for each in map(json.loads, lines) if "stream" in each])


def check_run(run: RunJournals) -> list[Fault]:
    calls, faults = _calls(run)
    faults += _check_whole(run)
    for call in calls.values():
        for check in (_check_effects, _check_end, _check_answers, _check_attribution, _check_permits):
            faults += check(call)
    receipts = [each for each in run.entries if isinstance(each, Answered)]
    faults += _check_receipts(receipts, calls)
    return faults


def _calls(run: RunJournals) -> tuple[dict[str, _Call], list[Fault]]:
    calls = {each.call: _Call(each) for each in run.entries if isinstance(each, Proposed)}
    faults = []
    streams: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for each in run.record:
        # `turn/<tenant>/<session>/<turn>` is the call `<tenant>.<session>.<turn>` elsewhere.
        streams[".".join(str(each["stream"]).split("/")[1:])].append(each)
    for entry in run.entries:
        if isinstance(entry, Planned | Proposed | Answered | Verified | Struck):
            continue
        call = calls.get(entry.call)
        if call is None:
            faults.append(Fault("unknown call", entry.call, f"a {entry.kind} for a call that was never proposed"))
        elif isinstance(entry, Accepted):
            call.id, call.record = entry.id, streams[entry.id]
        elif isinstance(entry, Effect):
            call.effects.append(entry)
        elif isinstance(entry, Used):
            call.uses.append(entry)
        elif isinstance(entry, Answering):
            call.answering.append(entry)
        elif isinstance(entry, Reported):
            call.reported.append(entry)
        elif isinstance(entry, Withdrawn):
            call.withdrawn = True
        else:
            call.ended = entry
    return calls, faults


def _check_whole(run: RunJournals) -> Iterator[Fault]:
    """Without calls, kills and an audit log that verifies, a run proves nothing."""
    for kind in (Planned, Proposed, Struck, Verified):
        if not any(isinstance(each, kind) for each in run.entries):
            yield Fault("empty run", "-", f"no entry of the kind {kind.__name__}")
    if not any(isinstance(each, Effect | Used) for each in run.entries):
        yield Fault("empty run", "-", "no call had an effect")
    for each in run.entries:
        if isinstance(each, Verified) and not each.ok:
            yield Fault("broken record", "-", each.words)


def _check_effects(call: _Call) -> Iterator[Fault]:
    """Check that an effect happens once, with the proposed arguments, and not for a denied call."""
    name, acts = call.proposed.call, call.acts
    if len(acts) > 1:
        yield Fault("doubled use" if call.uses else "doubled effect", name, f"it took effect {len(acts)} times")
    for args in acts:
        if args != call.proposed.args:
            yield Fault("other arguments", name, f"{args} took effect in place of {call.proposed.args}")
    if call.ended is not None and acts and call.ended.state not in _PERMITTED:
        yield Fault("denied call ran", name, f"it ended {call.ended.state!r} and took effect")
    if acts and call.withdrawn:
        yield Fault("denied call ran", name, "the agent withdrew it and was handed its permit")
    if call.ended is not None and not acts and call.ended.state == "ok":
        yield Fault("lost effect", name, "it ended `ok` and took no effect")


def _check_end(call: _Call) -> Iterator[Fault]:
    """Check that the workload can cause the end state, and that no question stays open."""
    name, ended = call.proposed.call, call.ended
    if ended is None:
        yield Fault("no ending", name, "it has not ended")
        return
    expected = ("ok", "denied", "in_doubt") if call.proposed.way == "turn" else ("ended", "denied")
    if ended.state not in expected or (ended.state == "ended" and ended.code not in ("ok", "in_doubt")):
        yield Fault("odd ending", name, f"it ended {ended.state!r} {ended.code!r}")
    if call.reported and (ended.state, ended.code) != ("ended", call.reported[-1].code):
        yield Fault("lost report", name, f"its report was taken, and it ended {ended.state!r} {ended.code!r}")
    for question in ended.questions:
        if question.state == "pending":
            yield Fault("open question", name, f"{question.approval} waits though its call has ended")
    asked = {(each["approval"], each["revision"]) for each in call.of_kind("request")}
    answered = {
        (each["approval"], each["revision"]) for each in call.of_kind("attempt") if each["status"] == "accepted"
    }
    for approval, revision in sorted(asked - answered):
        if not call.endings(approval, revision):
            yield Fault("open question", name, f"revision {revision} of {approval} has no answer and no ending")


def _check_answers(call: _Call) -> Iterator[Fault]:
    given = {(each.approval, each.revision, each.person, each.verdict) for each in call.answering}
    for each in call.of_kind("attempt"):
        if each["status"] in _COUNTED:
            found = (each["approval"], each["revision"], each["subject"], each["verdict"])
            if found not in given:
                yield Fault(
                    "misattributed answer",
                    call.proposed.call,
                    f"{found} is in the audit log, but the approver did not give it",
                )


def _check_attribution(call: _Call) -> Iterator[Fault]:
    name = call.proposed.call
    for each in call.answering:
        if call.id and not each.approval.startswith(f"{call.id}."):
            yield Fault("misattributed card", name, f"the card of {each.approval} shows the arguments of this call")
    for question in call.ended.questions if call.ended else ():
        shown = {*question.votes, *([(question.decided_by, "")] if question.decided_by else [])}
        for person, verdict in sorted(shown):
            same = [
                each
                for each in call.answering
                if (each.approval, each.person) == (question.approval, person) and verdict in ("", each.verdict)
            ]
            if not same:
                yield Fault("misattributed answer", name, f"{person} {verdict} is shown for {question.approval}")


def _check_permits(call: _Call) -> Iterator[Fault]:
    """The permit is a rule, or the number of approvals in the policy."""
    name = call.proposed.call
    executions = call.of_kind("execution")
    if call.acts and not executions:
        yield Fault("unrecorded effect", name, "it took effect and the record has no execution")
    approvals = [each for each in call.answering if each.verdict == "approved"]
    for each in executions:
        if call.proposed.by_rule and each["permit"] == "auto":
            continue
        people = {decision["subject"] for decision in each.get("decisions", ())}
        approved = {answer.person for answer in approvals if answer.revision == each["revision"]}
        if len(people) < call.proposed.voters or not people <= approved:
            yield Fault("unapproved effect", name, f"it ran by the approval of {sorted(people) or 'nobody'}")


def _check_receipts(receipts: list[Answered], calls: dict[str, _Call]) -> Iterator[Fault]:
    """Check that each accepted answer is in the audit log and has ended its question.

    A call that its agent withdraws before its turn hears of an approval is cancelled.
    """
    named = {each.approval: call for call in calls.values() for each in call.answering}
    for receipt in receipts:
        call = named.get(receipt.approval)
        if call is None or receipt.status not in _COUNTED:
            continue
        name = call.proposed.call
        mine = (receipt.approval, receipt.revision, receipt.person, receipt.verdict)
        kept = {
            (each["approval"], each["revision"], each["subject"], each["verdict"])
            for each in call.of_kind("attempt")
            if each["status"] in _COUNTED
        }
        if mine not in kept:
            yield Fault("lost answer", name, f"{mine} was accepted and is not in the record")
        endings = call.endings(receipt.approval, receipt.revision)
        is_withdrawn = call.withdrawn and endings == {"cancelled"}
        if receipt.status == "accepted" and endings and not is_withdrawn and _STATES[receipt.verdict] not in endings:
            yield Fault("lost answer", name, f"{mine} was accepted and the question ended {sorted(endings)}")
