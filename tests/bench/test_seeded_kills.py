import json
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tools.bench.kills.__main__ import read_arguments
from tools.bench.kills.checker import check_run, read_run
from tools.bench.kills.nemesis import VICTIMS, plan_strikes
from tools.bench.kills.workload import plan_calls

ROOT = Path(__file__).parents[2]
APPROVAL = "main.s.asked.c1.1"
ARGS = {"call": "asked", "amount": 80}
SECONDS = 20
Entries = dict[str, list[dict[str, Any]]]


def sound_run() -> Entries:
    answer = {"approval": APPROVAL, "revision": 1, "person": "ana", "verdict": "approved"}
    question: dict[str, Any] = {"approval": APPROVAL, "revision": 1, "state": "approved", "decided_by": "ana"}
    question["votes"] = [["ana", "approved"]]
    free = {"call": "free", "amount": 8}
    facts = {"approval": APPROVAL, "revision": 1}
    return {
        "workload": [
            {"kind": "planned", "seed": 7, "seconds": 60, "store": "sqlite"},
            {"kind": "proposed", "call": "asked", "way": "turn", "tool": "pay", "args": ARGS},
            {"kind": "accepted", "call": "asked", "id": "main.s.asked"},
            {"kind": "answering", "call": "asked", "question": "approval", **answer},
            {"kind": "answered", "status": "accepted", **answer},
            {
                "kind": "ended",
                "call": "asked",
                "state": "ok",
                "questions": [question],
            },
            {"kind": "proposed", "call": "free", "way": "external", "tool": "refund", "args": free, "by_rule": True},
            {"kind": "accepted", "call": "free", "id": "main.s.free"},
            {"kind": "used", "call": "free", "attempt": "free-1", "args": free},
            {"kind": "reported", "call": "free", "code": "ok"},
            {"kind": "ended", "call": "free", "state": "ended", "code": "ok"},
            {"kind": "verified", "ok": True, "words": ""},
        ],
        "nemesis": [{"kind": "struck", "victim": each, "act": "killed"} for each in VICTIMS],
        "effects": [{"kind": "effect", "call": "asked", "tool": "pay", "args": ARGS}],
        "record": [
            _record("asked", "request", facts),
            _record("asked", "attempt", facts | {"status": "accepted", "verdict": "approved"}, "ana"),
            _record("asked", "ending", facts | {"state": "approved"}),
            _record("asked", "execution", facts | {"permit": "approved", "decisions": [{"subject": "ana"}]}),
            _record("free", "execution", {"approval": "main.s.free.c1.1", "revision": 1, "permit": "auto"}),
        ],
    }


def _record(call: str, kind: str, data: dict[str, Any], subject: str = "rui") -> dict[str, Any]:
    return {"stream": f"turn/main/s/{call}", "kind": kind, "key": kind, "subject": subject, "data": data}


def find_faults(folder: Path, journals: Entries) -> set[tuple[str, str]]:
    for name, entries in journals.items():
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in entries))
    return {(fault.kind, fault.call) for fault in check_run(read_run(folder))}


def _entry(journals: Entries, kind: str, call: str = "asked", name: str = "workload") -> dict[str, Any]:
    return next(each for each in journals[name] if each["kind"] == kind and call in (each.get("call"), ""))


def _fact(journals: Entries, kind: str, call: str = "asked") -> dict[str, Any]:
    found = (each for each in journals["record"] if each["kind"] == kind and each["stream"].endswith(call))
    return next(found)


def _double_effect(journals: Entries) -> None:
    journals["effects"] *= 2


def _double_use(journals: Entries) -> None:
    journals["workload"].append(_entry(journals, "used", "free") | {"attempt": "free-2"})


def _change_args(journals: Entries) -> None:
    _entry(journals, "effect", name="effects")["args"] = ARGS | {"amount": 81}


def _hand_out_other_args(journals: Entries) -> None:
    _entry(journals, "used", "free")["args"] = ARGS


def _deny(journals: Entries) -> None:
    _entry(journals, "ended")["state"] = "denied"


def _withdraw(journals: Entries) -> None:
    journals["workload"].append({"kind": "withdrawn", "call": "free"})


def _lose_effect(journals: Entries) -> None:
    journals["effects"] = []


def _never_end(journals: Entries) -> None:
    journals["workload"].remove(_entry(journals, "ended"))


def _fail(journals: Entries) -> None:
    _entry(journals, "ended")["state"] = "execution_failed"


def _lose_report(journals: Entries) -> None:
    _entry(journals, "ended", "free")["code"] = "in_doubt"


def _leave_open(journals: Entries) -> None:
    _entry(journals, "ended")["questions"][0]["state"] = "pending"


def _drop_ending(journals: Entries) -> None:
    journals["record"].remove(_fact(journals, "ending"))
    journals["record"].remove(_fact(journals, "attempt"))


def _record_another_person(journals: Entries) -> None:
    _fact(journals, "attempt")["subject"] = "bo"


def _show_another_person(journals: Entries) -> None:
    _entry(journals, "ended")["questions"][0]["decided_by"] = "bo"


def _show_another_vote(journals: Entries) -> None:
    _entry(journals, "ended")["questions"][0]["votes"] = [["ana", "denied"]]


def _show_another_card(journals: Entries) -> None:
    _entry(journals, "answering")["call"] = "free"


def _run_without_approval(journals: Entries) -> None:
    _fact(journals, "execution")["data"]["decisions"] = []


def _run_by_another(journals: Entries) -> None:
    _fact(journals, "execution")["data"]["decisions"] = [{"subject": "bo"}]


def _run_by_one_of_two(journals: Entries) -> None:
    _entry(journals, "proposed")["voters"] = 2


def _pass_by_rule(journals: Entries) -> None:
    _fact(journals, "execution")["data"] |= {"permit": "auto", "decisions": []}


def _drop_execution(journals: Entries) -> None:
    journals["record"].remove(_fact(journals, "execution", "free"))


def _drop_execution_and_effect(journals: Entries) -> None:
    journals["record"].remove(_fact(journals, "execution"))
    journals["effects"] = []


def _lose_answer(journals: Entries) -> None:
    journals["record"].remove(_fact(journals, "attempt"))


def _end_otherwise(journals: Entries) -> None:
    _fact(journals, "ending")["data"]["state"] = "timed_out"


def _break_record(journals: Entries) -> None:
    _entry(journals, "verified", "")["ok"] = False


def _kill_nothing(journals: Entries) -> None:
    journals["nemesis"] = []


def _act_unasked(journals: Entries) -> None:
    journals["effects"].append({"kind": "effect", "call": "ghost", "tool": "pay", "args": {}})


FAULTS: dict[Callable[[Entries], None], tuple[str, str]] = {
    _double_effect: ("doubled effect", "asked"),
    _double_use: ("doubled use", "free"),
    _change_args: ("other arguments", "asked"),
    _hand_out_other_args: ("other arguments", "free"),
    _deny: ("denied call ran", "asked"),
    _withdraw: ("denied call ran", "free"),
    _lose_effect: ("lost effect", "asked"),
    _never_end: ("no ending", "asked"),
    _fail: ("odd ending", "asked"),
    _lose_report: ("lost report", "free"),
    _leave_open: ("open question", "asked"),
    _drop_ending: ("open question", "asked"),
    _record_another_person: ("misattributed answer", "asked"),
    _show_another_person: ("misattributed answer", "asked"),
    _show_another_vote: ("misattributed answer", "asked"),
    _show_another_card: ("misattributed card", "free"),
    _run_without_approval: ("unapproved effect", "asked"),
    _run_by_another: ("unapproved effect", "asked"),
    _run_by_one_of_two: ("unapproved effect", "asked"),
    _pass_by_rule: ("unapproved effect", "asked"),
    _drop_execution: ("unrecorded effect", "free"),
    _lose_answer: ("lost answer", "asked"),
    _end_otherwise: ("lost answer", "asked"),
    _break_record: ("broken record", "-"),
    _kill_nothing: ("empty run", "-"),
    _act_unasked: ("unknown call", "ghost"),
}


def test_checker_finds_no_fault_in_a_sound_run(tmp_path: Path) -> None:
    assert find_faults(tmp_path, sound_run()) == set()


@pytest.mark.parametrize("spoil", FAULTS, ids=lambda spoil: spoil.__name__.strip("_"))
def test_checker_finds_each_kind_of_fault(spoil: Callable[[Entries], None], tmp_path: Path) -> None:
    journals = sound_run()
    spoil(journals)
    assert FAULTS[spoil] in find_faults(tmp_path, journals)


def test_checker_accepts_a_permit_repeated_for_the_same_use(tmp_path: Path) -> None:
    journals = sound_run()
    journals["workload"].append(_entry(journals, "used", "free"))
    assert find_faults(tmp_path, journals) == set()


def test_checker_accepts_an_answer_whose_turn_was_cancelled(tmp_path: Path) -> None:
    journals = sound_run()
    journals["record"].remove(_fact(journals, "ending"))
    assert find_faults(tmp_path, journals) == set()


def test_checker_accepts_an_approval_of_a_withdrawn_call_and_no_other(tmp_path: Path) -> None:
    journals = sound_run()
    _deny(journals)
    _drop_execution_and_effect(journals)
    _fact(journals, "ending")["data"]["state"] = "cancelled"
    assert find_faults(tmp_path, journals) == {("lost answer", "asked")}
    journals["workload"].append({"kind": "withdrawn", "call": "asked"})
    assert find_faults(tmp_path, journals) == set()


def test_checker_finds_a_fault_without_journals(tmp_path: Path) -> None:
    assert find_faults(tmp_path, {}) == {("empty run", "-")}


def test_fault_ends_the_command_with_exit_code_1(tmp_path: Path) -> None:
    journals = sound_run()
    _double_effect(journals)
    find_faults(tmp_path, journals)
    command = [sys.executable, "-m", "tools.bench.kills", "--check", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "doubled effect: asked" in done.stdout


def test_unsupported_store_is_refused_before_anything_starts() -> None:
    command = [sys.executable, "-m", "tools.bench.kills", "--store", "mysql://localhost/signoff"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith("use `sqlite` or `postgresql://USER@HOST/NAME`, an empty database\n")
    assert done.stdout == ""


def test_sqlite_is_the_default_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["kills", "--store", "sqlite"])
    assert read_arguments().store == ""


def test_same_seed_gives_the_same_kills_and_calls() -> None:
    assert list(islice(plan_strikes(7), 50)) == list(islice(plan_strikes(7), 50))
    assert list(islice(plan_calls(7), 50)) == list(islice(plan_calls(7), 50))
    assert list(islice(plan_strikes(7), 50)) != list(islice(plan_strikes(8), 50))


@pytest.mark.parametrize("seed", range(20))
def test_first_three_strikes_kill_each_kind_of_process(seed: int) -> None:
    assert {victim for strike in islice(plan_strikes(seed), 3) for victim in strike.victims} == {*VICTIMS}


def run_kills(folder: Path, *store: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "tools.bench.kills", "--seed", "11", "--minutes", str(SECONDS / 60), *store]
    done = subprocess.run(
        [*command, "--journals", str(folder / "journals")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr[-3_000:]


@pytest.mark.timeout(600)
def test_short_run_of_kills_has_no_fault(tmp_path: Path) -> None:
    code, output, errors = run_kills(tmp_path)
    assert code == 0, f"{output}\n{errors}"
    assert all(f"{victim} killed" in output for victim in VICTIMS)


@pytest.mark.postgres
@pytest.mark.rehearsal
@pytest.mark.timeout(600)
def test_short_run_of_kills_over_postgresql_has_no_fault(postgres_url: str, tmp_path: Path) -> None:
    code, output, errors = run_kills(tmp_path, "--store", postgres_url)
    assert code == 0, f"{output}\n{errors}"
    assert all(f"{victim} killed" in output for victim in VICTIMS)
