from pathlib import Path
from typing import get_args

import pytest
from cli_kit import Cli, assert_one_sentence
from served_stack import MANIFEST, PROJECT

from signoff.cli.local.installation import find_installation
from signoff.cli.local.tools import _explain, find_tool
from signoff.contracts.content import Content
from signoff.contracts.message import CallPart
from signoff.registry.gates.inventory import inventory
from signoff.registry.gates.judged_call import GateName, settled_decision

PAY = '{"amount": %d, "to": "Ana", "pin": "4711-very-secret"}'
PERMISSIONS = """
from signoff.registry.hooks import Permission


async def check(args, context):
    return Permission.deny("an odd sum") if args["amount"] == 7 else Permission.allow()
"""


@pytest.fixture
def tools(cli: Cli, clean_env: pytest.MonkeyPatch) -> Cli:
    clean_env.setenv("SIGNOFF_MANIFEST", str(MANIFEST))
    return cli


async def test_tools_list_is_the_gate_inventory(tools: Cli) -> None:
    rows = {row["tool"]: row for row in (await tools("tools", "list", "--json")).data}
    assert {name: row["needs"] for name, row in rows.items()} == {
        "hurry": "asks",
        "look": "auto",
        "pay": "maybe asks, may be denied",
    }
    assert rows["pay"]["approvers"] == ["role:approvers"]
    assert "auto_approve_if: args.amount < 10" in (await tools("tools", "list")).out


async def test_tools_explain_describes_a_tool(tools: Cli) -> None:
    shown = await tools("tools", "explain", "pay")
    assert "string, secret" in shown.out
    assert "signoff.yaml:" in shown.out
    data = (await tools("tools", "explain", "pay", "--json")).data
    assert (data["secrets"], len(data["definition"])) == (["pin"], 64)


@pytest.mark.row("P18")
async def test_tools_explain_shows_the_six_layers_of_context(tools: Cli) -> None:
    layers = (await tools("tools", "explain", "pay", "--json")).data["context"]
    assert [each["name"] for each in layers] == [
        "identity",
        "hard constraints",
        "directory",
        "request",
        "results",
        "words",
    ]
    assert [each["number"] for each in layers if each["fixed"]] == [1, 2]
    assert "user guest" in layers[0]["holds"]
    shown = (await tools("tools", "explain", "pay")).out
    assert "1 identity" in shown
    assert "never after it is loaded" in shown


@pytest.mark.row("P19")
async def test_tools_explain_shows_the_autonomy_of_an_actor(
    cli: Cli, clean_env: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    manifest = tmp_path / "signoff.yaml"
    bounds = "autonomy: {unasked_if: \"'read' in tool.tags\"}, escalation: {approvers: ['role:leads']}"
    manifest.write_text(
        "version: 1\npath: [.]\ndefaults: {model: 'scripted:x:y'}\n"
        "tools: {look: {handler: 'bounded_desk:look', scope: generalist}}\n"
        f"actors: {{desk: {{tools: [look], {bounds}}}}}\n"
    )
    (tmp_path / "bounded_desk.py").write_text('async def look(where: str) -> str:\n    """Look."""\n    return where\n')
    clean_env.setenv("SIGNOFF_MANIFEST", str(manifest))
    data = (await cli("tools", "explain", "look", "--args", '{"where": "x"}', "--json")).data
    assert data["bounds"] == {"autonomy.unasked_if": "'read' in tool.tags", "escalation.approvers": ["role:leads"]}
    assert (data["call"]["kind"], data["call"]["verdict"]["terms"]["approvers"]) == ("ask", ["role:leads"])
    assert any("desk.autonomy.unasked_if" in rule for rule in data["rules"])
    shown = (await cli("tools", "explain", "look")).out
    assert "escalation.approvers" in shown


@pytest.mark.parametrize(
    ("amount", "kind", "gate"), [(5, "run", "approval"), (500, "ask", "approval"), (9000, "settled", "approval")]
)
async def test_tools_explain_judges_given_arguments(tools: Cli, amount: int, kind: str, gate: str) -> None:
    ran = await tools("tools", "explain", "pay", "--args", PAY % amount, "--json")
    assert (ran.data["call"]["kind"], ran.data["call"]["gate"]) == (kind, gate)
    assert "4711" not in ran.out


def test_unchecked_permission_is_a_question_in_json() -> None:
    """As on the tool's page: `settled` would look like a denial."""
    catalog = find_installation(str(MANIFEST)).catalog
    tool = find_tool(catalog, "pay")
    row = next(each for each in inventory(catalog) if each.tool == "pay")
    call = CallPart(call="c1.1", tool="pay", args=Content(inline={}))
    found = settled_decision(call, "permission", "refused", "asked first", tool)
    entries = [_explain(tool, row, each)["call"]["kind"] for each in (found, found._replace(awaits_permission=True))]
    assert entries == ["settled", "question"]


@pytest.mark.parametrize(("amount", "kind", "gate"), [(5, "run", "approval"), (7, "settled", "permission")])
async def test_tools_explain_calls_the_permission_check(
    cli: Cli, tmp_path: Path, amount: int, kind: str, gate: str
) -> None:
    (tmp_path / "cli_permissions.py").write_text(PERMISSIONS)
    head, _, rest = MANIFEST.read_text().partition("tools:\n")
    tool = rest.partition("  hurry:")[0] + "    check_permissions: 'cli_permissions:check'\n"
    manifest = tmp_path / "signoff.yaml"
    manifest.write_text(f"path: ['{PROJECT}', '{tmp_path}']\n{head}tools:\n{tool}")
    ran = await cli("tools", "explain", "pay", "--args", PAY % amount, "--app", str(manifest), "--json")
    assert (ran.data["call"]["kind"], ran.data["call"]["gate"]) == (kind, gate)


async def test_tools_explain_names_wrong_arguments(tools: Cli) -> None:
    ran = await tools("tools", "explain", "pay", "--args", '{"amount": "much"}')
    assert "input_invalid at gate schema" in ran.out
    assert "`amount`" in ran.out


async def test_tools_explain_names_every_gate_in_order(tools: Cli) -> None:
    order = list(get_args(GateName))
    asked = (await tools("tools", "explain", "pay", "--json")).data["gates"]
    assert [each["gate"] for each in asked] == order
    schema = order.index("schema")
    assert {each["answer"] for each in asked[:schema]} == {"passes"}
    assert {each["answer"] for each in asked[schema:]} == {"open"}
    assert asked[-1]["words"] == "maybe asks, may be denied"
    wrong = (await tools("tools", "explain", "pay", "--args", '{"amount": "much"}', "--json")).data["gates"]
    assert [each["answer"] for each in wrong] == [
        *["passes"] * schema,
        "decides",
        *["unasked"] * (len(order) - schema - 1),
    ]
    assert "`amount`" in wrong[schema]["words"]
    shown = (await tools("tools", "explain", "pay", "--args", PAY % 500)).out
    gates = [line.split()[:2] for line in shown.partition("Says")[2].splitlines()[1 : len(order) + 1]]
    assert gates == [*([gate, "passes"] for gate in order[:-1]), [order[-1], "decides"]]


async def test_unknown_tool_suggests_the_nearest(tools: Cli) -> None:
    for command in (("tools", "explain", "payy"), ("policy", "explain", "payy", "--args", "{}")):
        assert assert_one_sentence(await tools(*command)) == "there is no tool `payy`; did you mean `pay`?"


async def test_policy_check_compiles_every_policy(tools: Cli) -> None:
    ran = await tools("policy", "check", str(MANIFEST), "--json")
    assert (ran.code, sorted(ran.data["policies"]), ran.data["findings"]) == (0, ["hurry", "look", "pay"], [])


async def test_policy_check_points_into_the_expression(tools: Cli, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    text = MANIFEST.read_text().replace("args.amount < 10", "args.amuont < 10")
    wrong.write_text(f"path: ['{PROJECT}']\n{text}")
    message = assert_one_sentence(await tools("policy", "check", str(wrong)))
    assert "wrong.yaml:" in message
    assert "amuont" in message


async def test_policy_test_runs_the_cases(tools: Cli) -> None:
    ran = await tools("policy", "test", str(PROJECT / "cases.yaml"), "--app", str(MANIFEST))
    assert (ran.code, ran.out.strip()) == (0, "3 of 3 cases are as expected")


async def test_policy_test_shows_failures_with_the_reason(tools: Cli, tmp_path: Path) -> None:
    cases = tmp_path / "cases.yaml"
    cases.write_text((PROJECT / "cases.yaml").read_text().replace("expect: auto", "expect: deny"))
    ran = await tools("policy", "test", str(cases), "--app", str(MANIFEST))
    assert ran.code == 1
    assert "failed: small sums are paid by themselves: expected deny, got auto" in ran.out
    rows = (await tools("policy", "test", str(cases), "--app", str(MANIFEST), "--json")).data
    assert [row["passed"] for row in rows] == [False, True, True]


@pytest.mark.parametrize("text", ["{}", "[]", "- 5", "- {name: x, tool: payy, expect: ask}", "- {nam: x}"])
async def test_policy_test_refuses_invalid_cases(tools: Cli, tmp_path: Path, text: str) -> None:
    cases = tmp_path / "cases.yaml"
    cases.write_text(text)
    ran = await tools("policy", "test", str(cases), "--app", str(MANIFEST))
    assert (ran.code, ran.out) == (1, "")
    assert_one_sentence(ran)


LAYERED = """\
version: 1
defaults: {model: "scripted:nowhere:model"}
path: [%s]
tools:
  look: {handler: "cli_project_tools:look", scope: generalist}
actors:
  clerk:
    shadowing: allow
    routes:
      trip:
        own_tools:
          look: {handler: "cli_project_tools:look", scope: generalist}
          quote: {handler: "cli_project_tools:look", scope: generalist}
        steps:
          buy: {tools: [look], requires: [city]}
          ask: {collect: {city: {type: string}}, mode: only}
"""


@pytest.mark.row("F19")
async def test_tools_explain_shows_the_winning_layer_and_the_reasons(tools: Cli, tmp_path: Path) -> None:
    manifest = tmp_path / "signoff.yaml"
    manifest.write_text(LAYERED % PROJECT)
    explain = ("tools", "explain", "look", "--app", str(manifest))

    async def traced(*more: str) -> tuple[str, dict[str, str]]:
        data = (await tools(*explain, *more, "--json")).data
        return data["tool"], {each["layer"]: each["outcome"] for each in data["layers"]}

    on = ("--actor", "clerk", "--route", "trip")
    assert await traced() == ("look", {"agent": "absent", "registry": "won"})
    assert await traced(*on) == ("look@clerk.trip", {"route": "won", "agent": "absent", "registry": "lost"})
    tool, outcomes = await traced(*on, "--step", "buy", "--data", '{"city": "Porto"}')
    assert (tool, outcomes["step_reference"], outcomes["route"]) == ("look@clerk.trip.buy", "won", "lost")
    shown = await tools(*explain, *on, "--step", "buy")
    assert "waits for `city`" in " ".join(shown.out.split())
    assert "step `buy` is nearer" in " ".join(shown.out.split())
    gates = (await tools(*explain, *on, "--step", "ask", "--json")).data["gates"]
    assert [each["gate"] for each in gates if each["answer"] == "decides"] == ["layer"]
    assert (await tools("tools", "explain", "quote", "--app", str(manifest), "--json")).data["tool"] == (
        "quote@clerk.trip"
    )
    assert "has no route and step" in assert_one_sentence(await tools(*explain, *on, "--step", "by"))
    assert "has no routes" not in shown.out
    nowhere = await tools("tools", "explain", "pay", "--route", "trip")
    assert "note: actor `clerk` has no routes: rules read `--route` and `--step`, nothing else does" in nowhere.out


@pytest.mark.row("F31")
async def test_tools_list_selects_by_scope(tools: Cli, tmp_path: Path) -> None:
    manifest = tmp_path / "signoff.yaml"
    manifest.write_text(LAYERED % PROJECT)

    async def listed(*more: str) -> list[str]:
        data = (await tools("tools", "list", *more, str(manifest), "--json")).data
        return [row["tool"] for row in data]

    everything = ["collect@clerk.trip.ask", "look", "look@clerk.trip", "look@clerk.trip.buy", "quote@clerk.trip"]
    assert sorted(await listed()) == sorted(await listed("--scope", "all")) == everything
    assert await listed("--scope", "registered") == ["look"]
    assert await listed("--scope", "agent", "--actor", "clerk") == []
    assert sorted(await listed("--scope", "route", "--route", "trip")) == ["look@clerk.trip", "quote@clerk.trip"]
    assert await listed("--scope", "step", "--actor", "clerk", "--step", "buy") == ["look@clerk.trip.buy"]
    wrong = await tools("tools", "list", "--scope", "steps", str(manifest))
    assert "there is no scope `steps`" in assert_one_sentence(wrong)


async def test_policy_explain_shows_rule_engines_and_inputs(tools: Cli) -> None:
    ran = await tools("policy", "explain", "pay", "--args", PAY % 500, "--ctx", '{"user": {"tier": "gold"}}', "--json")
    data = ran.data
    assert (data["verdict"], data["rule"]["name"]) == ("ask", "auto_approve_if")
    assert len({each["engine"] for each in data["engines"]}) == 2
    assert (data["ctx"]["user"]["tier"], data["ctx"]["user"]["id"]) == ("gold", "guest")
    assert "4711" not in ran.out
    assert "ask: " in (await tools("policy", "explain", "pay", "--args", PAY % 500)).out


async def test_policy_explain_refuses_invalid_arguments(tools: Cli) -> None:
    message = assert_one_sentence(await tools("policy", "explain", "pay", "--args", '{"amount": 5}'))
    assert "these are no arguments of `pay`" in message
