import re
from pathlib import Path

import pytest
from cli_kit import Cli, assert_one_sentence
from served_stack import MANIFEST, PROJECT

from signoff.contracts.call import RuleReference

REFERENCE = "cli_handler_rules:judge"
RULES = """
async def judge(call, context):
    if call.args["amount"] > 50 and context["user"]["id"] == "guest":
        return "admin"
    return "auto"
"""
CASES = """
- {name: a small sum, tool: pay, args: {amount: 5, to: Ana, pin: x}, ctx: {user: {id: guest}}, expect: auto}
- {name: a large sum, tool: pay, args: {amount: 500, to: Ana, pin: x}, ctx: {user: {id: guest}}, expect: ask}
- {name: a context that breaks the handler, tool: pay, args: {amount: 500, to: Ana, pin: x}, expect: ask}
"""


@pytest.fixture
def handled(tmp_path: Path) -> Path:
    (tmp_path / "cli_handler_rules.py").write_text(RULES)
    head, _, rest = MANIFEST.read_text().partition("tools:\n")
    tools = rest.partition("  hurry:")[0].partition("    requires_approval:")[0]
    policy = f"    requires_approval: {{handler: '{REFERENCE}'}}\n"
    path = tmp_path / "signoff.yaml"
    path.write_text(f"path: ['{PROJECT}', '{tmp_path}']\n{head}tools:\n{tools}{policy}")
    (tmp_path / "wrong.yaml").write_text(path.read_text().replace(":judge", ":juge"))
    (tmp_path / "cases.yaml").write_text(CASES)
    return path


async def test_policy_check_imports_the_handler(cli: Cli, handled: Path) -> None:
    assert (await cli("policy", "check", str(handled))).code == 0
    message = assert_one_sentence(await cli("policy", "check", str(handled.with_name("wrong.yaml"))))
    assert re.search(r"wrong\.yaml:\d+: `handler` of the policy of tool `pay`: module", message)
    assert "has no `juge`; did you mean `judge`?" in message


async def test_policy_test_calls_the_handler(cli: Cli, handled: Path) -> None:
    rows = (await cli("policy", "test", str(handled.with_name("cases.yaml")), "--app", str(handled), "--json")).data
    assert [(row["passed"], RuleReference.model_validate(row["verdict"]["rule"]).label) for row in rows] == [
        (True, f"handler:{REFERENCE}"),
        (True, f"handler:{REFERENCE} (admin)"),
        (True, f"handler:{REFERENCE} (failed)"),
    ]


async def test_policy_explain_calls_the_handler(cli: Cli, handled: Path) -> None:
    call = ("pay", "--args", '{"amount": 500, "to": "Ana", "pin": "x"}', "--app", str(handled))
    text = (await cli("policy", "explain", *call)).out
    assert "ask: `handler` says ask" in text
    assert f"rule: handler:{REFERENCE} (admin): ask admin" in text
    assert "approvers: role:admin" in text
    row = (await cli("tools", "explain", *call, "--json")).data
    assert (row["needs"], row["rules"]) == ("handler decides, may be denied", [f"handler: {REFERENCE}"])
    assert (row["call"]["kind"], row["call"]["verdict"]["level"]) == ("ask", "admin")
