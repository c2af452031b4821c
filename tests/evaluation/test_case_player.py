import dataclasses
from typing import Any

import pytest
from evaluation_kit import ASKS, SCHEMA, a_call, a_case, a_catalog, a_tool
from tables import table

from signoff.approvals.redaction import HIDDEN
from signoff.contracts.approval import Terms
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.message import ResultPart
from signoff.contracts.usage import UsageLimit
from signoff.evaluation.case_file import EvaluationCase
from signoff.evaluation.case_player import CaseModel, PlayResult, find_misfits, play
from signoff.formats.replace import replace
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.policy.handler_verdict import HandlerCall
from signoff.registry.actor import Route, Step
from signoff.registry.capabilities import Capabilities
from signoff.registry.catalog import Catalog
from signoff.registry.gates import pipeline
from signoff.registry.hooks import HookContext, Permission
from signoff.testing.scripted_model import ScriptedModel, calls, respond, say, steps

TRIP = Route(name="trip", steps=(Step(name="buy"),))
SMALL, LARGE = ("pay", {"amount": 20}), ("pay", {"amount": 70})


def verdicts(played: PlayResult) -> list[str]:
    return [each.verdict for each in played.calls]


async def played_with(case: EvaluationCase, catalog: Catalog, *script: Completion) -> tuple[PlayResult, list[str]]:
    results: list[str] = []
    model = steps(script)

    async def react(request: CompletionRequest) -> Completion:
        parts = [part for message in request.messages for part in message.parts if isinstance(part, ResultPart)]
        results[:] = [f"{part.code} {part.value.inline}" for part in parts]
        return await model.complete(request)

    return await play(case, catalog, CaseModel("script", ScriptedModel(react))), results


async def test_recorded_calls_are_judged_by_the_present_policy() -> None:
    case = a_case(a_call(20), a_call(70, "ask", "c1.2"), a_call(900, "deny", "c1.3"))
    policy = ApprovalPolicy(
        auto_approve_if="args.amount < 10.0", deny_if="args.amount > 500.0", approvers=("user:ana",)
    )
    played = await play(case, a_catalog(a_tool(requires_approval=policy)))
    assert verdicts(played) == ["ask", "ask", "deny"]
    assert (played.calls[0].rule, played.calls[0].terms) == ("auto_approve_if", Terms(approvers=("user:ana",)))
    assert (played.calls[2].rule, played.calls[2].gate) == ("deny_if", "approval")
    assert (played.ending, played.answer) == ("complete", "done")


@pytest.mark.row("V16")
async def test_model_calls_are_answered_from_the_record_by_tool_and_arguments() -> None:
    case = a_case(a_call(20, args={"amount": 20, "pin": "1"}), a_call(70, "ask", "c1.2"))
    script = (calls(("pay", {"pin": "1", "amount": 20.0})), calls(LARGE), calls(("pay", {"amount": 21})), respond("ok"))
    played, results = await played_with(case, a_catalog(), *script)
    assert results[:2] == ["ok paid 20", "ok paid 70"]
    assert results[2].startswith("unrecorded unrecorded")
    assert [each.answered for each in played.calls] == ["record", "record", "nobody"]
    assert (played.unrecorded, played.ending, played.answer) == (1, "complete", "ok")


async def test_equal_calls_get_their_own_answers_and_then_repeat_the_last() -> None:
    answers = [a_call(call=f"c1.{n}", result={"code": "ok", "value": f"answer {n}"}) for n in (1, 2)]
    _, results = await played_with(a_case(*answers), a_catalog(), calls(SMALL, SMALL), calls(SMALL), respond("ok"))
    assert results == ["ok answer 1", "ok answer 2", "ok answer 2"]


async def test_decisions_are_taken_from_the_record() -> None:
    denied = a_call(70, "ask", decision={"verdict": "denied", "by": "ana"}, result={"code": "denied", "value": "no"})
    asked, results = await played_with(a_case(denied), a_catalog(), calls(LARGE), respond("ok"))
    assert (verdicts(asked), results) == (["ask"], ["denied no"])
    freed, results = await played_with(
        a_case(denied), a_catalog(a_tool(requires_approval=False)), calls(LARGE), respond("ok")
    )
    assert (verdicts(freed), freed.unrecorded) == (["run"], 1)
    assert results[0].startswith("unrecorded")


async def test_call_settled_by_gates_is_answered_by_them() -> None:
    played, results = await played_with(a_case(a_call()), a_catalog(), calls(("fly", {})), respond("ok"))
    assert verdicts(played) == ["not_available"]
    assert results == ["not_available Unknown tool: fly; use one of the tools you were given"]
    assert played.calls[0].answered == "gates"


async def test_case_is_judged_by_the_gates_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "MAX_CALLS_PER_TOOL", 2)
    played, _ = await played_with(a_case(a_call()), a_catalog(), calls(SMALL, LARGE), calls(LARGE), respond("ok"))
    assert verdicts(played) == ["run", "ask", "too_many_calls"]


async def test_model_gets_the_present_instructions_and_tools() -> None:
    seen: list[CompletionRequest] = []

    def react(request: CompletionRequest) -> Completion:
        seen.append(request)
        return say("hello")

    earlier = {"role": "assistant", "text": "well", "calls": [a_call(5)]}
    messages = [{"role": "user", "text": "first"}, earlier, {"role": "user", "text": "then"}]
    case = a_case(a_call(), messages=messages, completions=[{"at": "2026-11-24T10:00:00+00:00", "withheld": ["look"]}])
    catalog = a_catalog(a_tool(), a_tool("look"), instructions="Be kind.")
    played = await play(case, catalog, CaseModel("script", ScriptedModel(react), {"temperature": 0}))
    [request] = seen
    assert (request.model, request.instructions, request.settings) == ("script", "Be kind.", {"temperature": 0})
    assert [tool.name for tool in request.tools] == ["pay", "respond"]
    assert [message.role for message in request.messages] == ["user", "assistant", "tool", "user"]
    assert len(request.provider) == 4
    assert (played.ending, played.answer) == ("complete", "hello")


async def test_unreadable_answer_is_returned_to_the_model_once() -> None:
    wrong = calls(("respond", {"state": "complete"}), text="words")
    played, results = await played_with(a_case(a_call()), a_catalog(), wrong, respond("done", "clarifying"))
    assert results[0].startswith("input_invalid respond was not understood")
    assert (played.ending, played.answer) == ("clarifying", "done")
    played, _ = await played_with(a_case(a_call()), a_catalog(), wrong, wrong)
    assert (played.ending, played.answer) == ("complete", "words")


async def test_model_that_never_answers_stops_at_the_actor_limit() -> None:
    catalog = a_catalog()
    actor = catalog.actors["desk"]
    limited = dataclasses.replace(actor, limits=replace(actor.limits, completions=3))
    catalog = dataclasses.replace(catalog, actors={"desk": limited})
    played, _ = await played_with(a_case(a_call()), catalog, calls(SMALL))
    assert (played.ending, len(played.calls)) == ("error", 3)


async def test_secret_arguments_are_hidden_but_still_matched() -> None:
    recorded = a_call(args={"amount": 20, "pin": HIDDEN})
    catalog = a_catalog(a_tool(secrets=("pin",)))
    played, results = await played_with(
        a_case(recorded), catalog, calls(("pay", {"amount": 20, "pin": "4711"})), respond("ok")
    )
    assert results == ["ok paid 20"]
    assert played.calls[0].args == {"amount": 20, "pin": HIDDEN}


def misses(case: EvaluationCase, catalog: Catalog) -> str:
    [misfit] = find_misfits(case, catalog)
    return misfit


def test_case_that_the_present_catalog_cannot_play_is_a_misfit() -> None:
    assert misses(a_case(actor="dsk"), a_catalog()) == "there is no actor `dsk`; did you mean `desk`?"
    assert "has no route and step `tri/buy`" in misses(a_case(route="tri", step="buy"), a_catalog(routes=(TRIP,)))
    assert "can have no tool `fly` for one turn" in misses(a_case(transient=["fly"]), a_catalog())
    number = {**SCHEMA, "properties": {"amount": {"type": "number"}, "pin": {"type": "integer"}}}
    hidden = a_case(a_call(args={"amount": 1, "pin": HIDDEN}))
    catalog = a_catalog(a_tool(input_schema=number, secrets=("pin",)))
    assert "call c1.1 of `pay`: the hidden `pin`" in misses(hidden, catalog)
    assert find_misfits(hidden, a_catalog(a_tool(secrets=("pin",)))) == []
    assert find_misfits(a_case(a_call(tool="gone")), a_catalog()) == []


async def refuses(args: dict[str, Any], context: HookContext) -> Permission:
    raise AssertionError("an evaluation asked a tool's permission check")


def answers(call: HandlerCall, context: dict[str, Any]) -> str:
    raise AssertionError("an evaluation asked a policy's handler")


@table(
    ("recorded", "verdict"),
    (a_call(20, "run"), "run"),
    (a_call(70, "ask"), "ask"),
    (a_call(20, "ask", rule={"kind": "permission"}), "ask"),
    (a_call(20, "deny", gate="permission", result={"code": "denied", "value": "no"}), "deny"),
)
async def test_permission_answer_is_taken_from_the_record(recorded: dict[str, Any], verdict: str) -> None:
    catalog = a_catalog(a_tool(check_permissions=refuses))
    assert verdicts(await play(a_case(recorded), catalog)) == [verdict]


@table(
    ("recorded", "verdict"),
    (a_call(20, "run"), "run"),
    (a_call(20, "ask", rule={"kind": "handler", "handler": f"{__name__}:answers"}), "ask"),
    (a_call(20, "deny", gate="approval", rule={"kind": "handler", "handler": f"{__name__}:answers"}), "deny"),
    # Another handler whose name has the same prefix.
    (a_call(20, "ask", rule={"kind": "handler", "handler": f"{__name__}:answers_well"}), "run"),
)
async def test_handler_answer_is_taken_from_the_record(recorded: dict[str, Any], verdict: str) -> None:
    policy = ApprovalPolicy(
        auto_approve_if="args.amount < 50.0", handler=f"{__name__}:answers", approvers=("user:ana",)
    )
    assert verdicts(await play(a_case(recorded), a_catalog(a_tool(requires_approval=policy)))) == [verdict]
    asks = replace(policy, auto_approve_if="args.amount < 1.0")
    tighter = "deny" if verdict == "deny" else "ask"
    assert verdicts(await play(a_case(recorded), a_catalog(a_tool(requires_approval=asks)))) == [tighter]


async def test_abstaining_handler_is_not_replayed_as_an_approval() -> None:
    """Alone, abstaining approves nothing: the call was asked because no rule approved it, and is asked again."""
    tool = a_tool(requires_approval=ApprovalPolicy(handler=f"{__name__}:answers", approvers=("user:ana",)))
    asked = a_call(20, "ask", rule={"name": "requires_approval"})
    assert verdicts(await play(a_case(asked), a_catalog(tool))) == ["ask"]


@table(
    ("gate", "fields"),
    ("available", {}),
    ("usage", {"usage_limit": UsageLimit(5, "user", 60.0)}),
    ("capabilities", {"capabilities": Capabilities(network=("example.org",))}),
)
async def test_recorded_unavailability_is_replayed(gate: str, fields: dict[str, Any]) -> None:
    recorded = a_call(20, "not_available", gate=gate, result={"code": "not_available", "value": "gone"})
    catalog = a_catalog(a_tool(**fields))
    assert verdicts(await play(a_case(recorded), catalog)) == ["not_available"]
    assert verdicts(await play(a_case(a_call(20)), catalog)) == ["run"]


async def test_doubted_requester_is_asked_about_again() -> None:
    assert verdicts(await play(a_case(a_call(20, "ask", rule={"kind": "requester"})), a_catalog())) == ["ask"]


async def test_call_is_judged_at_its_time_and_in_its_context() -> None:
    policy = ApprovalPolicy(auto_approve_if="ctx.now.hour < 12", approvers=("user:ana",))
    early, late = "2026-11-24T10:00:00+00:00", "2026-11-24T20:00:00+00:00"
    completions = [{"at": at, "calls": [a_call(20, call=f"c{n}.1")]} for n, at in enumerate((early, late), 1)]
    played = await play(a_case(completions=completions), a_catalog(a_tool(requires_approval=policy)))
    assert verdicts(played) == ["run", "ask"]


async def test_dry_run_case_is_replayed_as_a_dry_run() -> None:
    played = await play(a_case(a_call(70, "dry_run"), dry_run=True), a_catalog(a_tool(requires_approval=ASKS)))
    assert verdicts(played) == ["dry_run"]
