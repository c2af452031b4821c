from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from registry_kit import a_tool
from tables import table

from signoff.contracts.errors import RegistrationError
from signoff.contracts.usage import UsageLimit
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.capabilities import Capabilities
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.program.tool_keywords import BypassRouting
from signoff.registry.tool import Tool


@table(
    ("fields", "expected"),
    ({"bypass_routing": {"reason": "It reads a local cache."}}, BypassRouting("It reads a local cache.")),
    ({"bypassRouting": {"reason": "It reads a local cache."}}, BypassRouting("It reads a local cache.")),
    ({"usage_limit": {"count": 3, "per": "user", "period": "1d"}}, UsageLimit(3, "user", 86_400.0)),
    ({"usage_limit": {"count": 3, "per": "user", "period": timedelta(days=1)}}, UsageLimit(3, "user", 86_400.0)),
    ({"capabilities": {"network": ("example.org",), "fsReach": ["/srv"]}},
     Capabilities(network=("example.org",), fs_reach=("/srv",))),
    ({"requires_approval": {"autoApproveIf": "args.totalCost < 5.0", "timeout": "1h"}},
     ApprovalPolicy(auto_approve_if="args.totalCost < 5.0", timeout=3_600.0)),
)  # fmt: skip
def test_mapping_becomes_the_record_of_its_field(fields: dict[str, Any], expected: object) -> None:
    assert expected in vars(a_tool(**fields)).values()


@table(
    ("fields", "words"),
    ({"bypass_routing": {"reson": "x"}}, "unknown key `reson` of `bypass_routing` of tool `book_flight`; did you mean"),
    ({"bypass_routing": {}}, "`reason` of `bypass_routing` of tool `book_flight` is missing"),
    ({"usage_limit": {"count": 3, "per": "user", "perid": "1d"}}, "unknown key `perid` of `usage_limit`"),
    ({"usage_limit": {"count": 3, "per": "person", "period": "1d"}}, "must be `user`, `session` or `tenant`"),
    ({"capabilities": {"networks": ["a.org"]}}, "unknown key `networks` of `capabilities` of tool `book_flight`; did"),
    ({"capabilities": {"network": "a.org"}}, "`network` of `capabilities` of tool `book_flight` must be a list"),
    ({"requires_approval": {"autoAproveIf": "true"}}, "did you mean `autoApproveIf`?"),
    ({"requires_approval": {"quorum": 0}}, "`requires_approval` of tool `book_flight`: `quorum`"),
)
def test_invalid_mapping_key_is_refused_with_the_line_of_the_tool(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(RegistrationError) as refused:
        a_tool(**fields)
    assert words in refused.value.message
    assert refused.value.message.startswith(f"{Path(__file__).parent / 'registry_kit.py'}:")
    assert refused.value.context["tool_name"] == "book_flight"


def judge(call: Any, context: dict[str, Any]) -> str:
    return "ask"


@table("given", judge, {"handler": judge})
def test_function_becomes_the_handler_of_the_policy(given: Any) -> None:
    tool = a_tool(requires_approval=given)
    assert tool.requires_approval == ApprovalPolicy(handler=f"{__name__}:judge")
    assert tool.policy_function is judge


def test_manifest_policy_replaces_the_policy_function_of_the_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "judged.py").write_text(
        "from signoff import Tool\n\n\n"
        "async def book(args, context):\n    return 1\n\n\n"
        "def judge(call, context):\n    return 'auto'\n\n\n"
        "tool = Tool(name='book', description='Book.', input_schema={'type': 'object'}, handler=book,\n"
        "            scope='generalist', requires_approval=judge)\n"
    )
    manifest = tmp_path / "signoff.yaml"
    manifest.write_text(
        "version: 1\nactors: {a: {model: offline}}\n"
        "tools: {book: {handler: 'judged:tool', requires_approval: {deny_if: 'false'}}}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    tool = load_manifest(manifest).resolve("book")
    assert isinstance(tool, Tool)
    assert tool.policy_function is None
