import os
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest
from pydantic.alias_generators import to_camel
from tests.documents import ROOT

from signoff.formats.declared_fields import declared_fields
from signoff.registry.program.tool_keywords import ToolKeywords
from signoff.registry.tool import Tool

RIGHT = '''
from datetime import timedelta
from typing import Any

import signoff


async def pay(args: dict[str, Any], context: signoff.ToolContext) -> str:
    return "paid"


def judge(call: object, context: dict[str, Any]) -> str:
    return "ask"


signoff.Tool(
    id="pay", name="Pay", description="Pay.", parameters={"type": "object"}, execute=pay, scope="generalist",
    timeout="30s", cachePermission=timedelta(seconds=5), readOnly=True, maxResultChars=50, outputSchema=None,
    usageLimit={"count": 1, "per": "user", "period": "1d"}, requiresApproval={"autoApproveIf": "args.euro < 5.0"},
    capabilities={"network": ["example.org"]}, bypassRouting={"reason": "It reads a local cache."},
)

signoff.ApprovalPolicy(auto_approve_if="args.euro < 5.0", min_assurance="mfa")


@signoff.tool(scope="generalist", timeout="30s", readOnly=True)
async def read(city: str) -> str:
    """Read it."""
    return city


app = signoff.App(model="offline")


@app.tool(timeout="30s", usage_limit={"count": 1, "per": "user", "period": "1d"})
def look(city: str) -> str:
    """Look."""
    return city


clerk = app.actor("clerk", tools=[look, read], limits={"calls": 3})
clerk.route("returns", prompt="Take it back.").tool(justification="Returns alone have it.")(look)
app.policy("ask", "true", effect="require_approval")
app.policy(rule="true", effect="deny")
'''
WRONG = (
    'signoff.Tool(name="pay", descripton="Pay.")',
    'signoff.Tool(name="pay", readonly=True)',
    'signoff.Tool(name="pay", read_only="yes")',
    'signoff.tool(scope="generalist", timeOut=3)',
    'signoff.App(aprovers=["role:desk"])',
    'signoff.App().actor("clerk", instrutions="Help.")',
    'signoff.App().tool(efect="Pay")',
    'signoff.App().policy(rule="true", efect="deny")',
    'signoff.ApprovalPolicy(autoApproveIf="true")',
)


def test_tool_keywords_are_its_fields_and_their_aliases() -> None:
    fields = declared_fields(Tool)
    words = {word for name, each in fields.items() for word in (name, to_camel(name), *each.spec.aliases)}
    by_form = {"auto_approve_if", "deny_if", "approvers"}
    in_code = {to_camel(name) for name in ("policy_function", "stricter_policy")}
    assert get_type_hints(ToolKeywords).keys() - by_form == words - in_code


@pytest.mark.long
def test_type_checker_accepts_correct_keywords_and_rejects_misspelled_ones(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(RIGHT, encoding="utf-8")
    (tmp_path / "wrong.py").write_text("import signoff\n\n" + "\n".join(WRONG), encoding="utf-8")
    kept = ("--cache-dir", str(Path(sys.prefix) / ".mypy_cache_of_examples"), "--follow-imports", "silent")
    command = (sys.executable, "-m", "mypy", "--config-file=", "--strict", *kept, "--ignore-missing-imports", ".")
    paths = {"MYPYPATH": f"{ROOT / 'src'}:{ROOT / 'clients' / 'python'}"}
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | paths, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line for line in lines if not line.startswith("wrong.py:")] == []
    assert {int(line.split(":")[1]) for line in lines} == {*range(3, 3 + len(WRONG))}, done.stdout
