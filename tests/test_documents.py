import dataclasses
import json
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest
from documents import (
    PAGES,
    ROOT,
    anchors,
    blocks_below,
    links,
    marked_rows,
    named,
    names,
    page,
    row_markers,
    shell_lines,
    tables,
)
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from tables import table

from signoff.cli.main import COMMANDS, _load_command
from signoff.contracts import limits
from signoff.contracts.content import Remark
from signoff.contracts.names import ENV_PREFIX, PLUGIN_NAMES
from signoff.contracts.receipt import Receipt, ReceiptCode
from signoff.formats.record_section import nested_section, section_table
from signoff.gateway.app import gateway_routes
from signoff.gateway.auth.route_table import access_of
from signoff.gateway.errors import receipt_status
from signoff.gateway.plugin_routes import load_plugin_routers
from signoff.languages.remarks import english
from signoff.people.people_file import PersonSection, ReachSection
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule, TermRule
from signoff.registry.actor import Autonomy, Callbacks, EscalationPath
from signoff.registry.gates.judged_call import GateName
from signoff.registry.manifest.channel_sections import RoutingSection
from signoff.registry.manifest.scope_sections import RouteSection, StepSection
from signoff.registry.manifest.sections import ActorSection, ManifestSection
from signoff.registry.manifest.server_sections import ToolServerSection
from signoff.registry.manifest.subscription_sections import SubscriptionSection
from signoff.registry.manifest.tool_section import tool_table
from signoff.registry.tool import Tool
from signoff.settings import load_settings
from signoff.temporal.server_connection import SEARCH_ATTRIBUTES

ROWS = {"B": 84, "C": 20, "P": 19, "F": 58, "E": 63, "N": 32, "X": 25, "V": 18}
FEATURES = ("Done", "Different on purpose", "Later")
STATED = {
    "B": [
        *range(1, 15),
        *range(23, 28),
        *range(29, 33),
        *range(37, 40),
        41,
        42,
        *range(45, 49),
        59,
        *range(67, 72),
        *range(75, 79),
        84,
    ],
    "P": [*range(1, 16)],
    "F": [*range(1, 23), 58],
    "C": [*range(1, 21)],
    "E": [1, 2, 4, 6, 10, 11, 13, 14, *range(16, 23), 25, 31, 32, 35, 38, *range(40, 44)],
}
"""The row numbers that a design's own document states: each has its own proof."""
INTERNAL = sorted((ROOT / "docs" / "internal").glob("*.md"))
LIMIT_GROUPS = {
    "Requests and connections": "limits.md",
    "Approvers and decisions": "limits.md",
    "Models, calls and turns": "limits.md",
    "Sessions": "limits.md",
    "Email and words": "limits.md",
    "Limits of rules": "internal/security-tests.md",
}
UNITS = {"KiB": limits.KIB, "MiB": limits.MIB}
CODE_ONLY = {"place", "policy_function", "site", "stricter_policy", "undeclared"}
FILE_ONLY = {"reducer", "per_call"}


def _all_rows() -> set[str]:
    rows = {f"{letter}{number:02}" for letter, count in ROWS.items() for number in range(1, count + 1)}
    return rows | {f"Q{number}" for number in range(1, 8)}


def test_done_rows_equal_the_rows_of_the_tests() -> None:
    carried = row_markers()
    listed = {row[0]: row[2] for row in tables("docs/internal/features.md", "Done")}
    assert set(carried) - set(listed) == set(), "tests carry these rows: list them as `Done`"
    assert set(listed) - set(carried) == set(), "no test carries these rows any more"
    for row, proof in listed.items():
        found = re.fullmatch(r"\[`(\w+)`\]\(\.\./\.\./(tests/[\w/]+\.py)\)", proof)
        assert found, f"{row}: a proof is written [`test_name`](../../tests/path.py)"
        assert f"{found[2]}::{found[1]}" in carried[row], f"{row}: that test does not carry it"


def test_every_row_of_the_designs_is_listed_once() -> None:
    every = [row[0] for heading in FEATURES for row in tables("docs/internal/features.md", heading)]
    assert {row: count for row, count in Counter(every).items() if count > 1} == {}, "these stand in two places"
    assert _all_rows() - set(every) == set(), "these stand nowhere"
    assert set(every) - _all_rows() == set(), "there are no such rows"
    assert set(row_markers()) <= _all_rows()


def test_each_stated_row_has_its_own_test() -> None:
    stated = {f"{letter}{number:02}" for letter, numbers in STATED.items() for number in numbers}
    proofs = {row[0]: row[2] for row in tables("docs/internal/features.md", "Done") if row[0] in stated}
    assert stated - set(proofs) == {"P09"}, "stated and not done: only where two designs contradict each other"
    shared = {proof: [row for row in proofs if proofs[row] == proof] for proof in proofs.values()}
    assert {proof: rows for proof, rows in shared.items() if len(rows) > 1} == {}, "split these tests"
    marked = {
        f"[`{name.partition('::')[2]}`](../../{name.partition('::')[0]})": rows for name, rows in marked_rows().items()
    }
    besides = {row: stated.intersection(marked[proof]) - {row} for row, proof in proofs.items()}
    assert {row: others for row, others in besides.items() if others} == {}, "these tests prove others as well"


def test_no_test_proves_more_than_three_rows_at_once() -> None:
    assert {name: rows for name, rows in marked_rows().items() if len(rows) > 3} == {}


@table("path", *PAGES, ROOT / "CONTRIBUTING.md", *INTERNAL, ids=lambda path: path.name)
def test_relative_links_resolve(path: Path) -> None:
    for target in links(path):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        assert there.exists(), f"{path.name} links to {target}"
        assert not anchor or anchor in anchors(there), f"{path.name} links to {target}"


def test_every_internal_page_is_listed() -> None:
    listed = [link for link in links(ROOT / "docs" / "internal" / "README.md") if re.fullmatch(r"[\w-]+\.md", link)]
    assert sorted(listed) == sorted(path.name for path in INTERNAL if path.name != "README.md")


@table("name", "architecture.md", "where-to-add.md")
def test_names_on_a_map_are_in_their_modules(name: str) -> None:
    folder = ROOT / "docs" / "internal"
    placed = re.findall(r"`([\w.]+)`\s+(?:in|of)\s+\[[^\]]+\]\(([^)]+\.py)\)", page(f"docs/internal/{name}"))
    assert len(placed) > 20
    absent = [
        (each, file) for each, file in placed if each.rpartition(".")[2] not in (folder / file).read_text("utf-8")
    ]
    assert absent == []


def _subcommands(name: str) -> dict[str, Any]:
    return dict(vars(_load_command(name)).get("commands", {}))


def test_every_command_is_documented() -> None:
    there = {f"{name} {sub}" if sub else name for name in COMMANDS for sub in (_subcommands(name) or [""])}
    written = [words.removeprefix("signoff ") for words in named("docs/commands.md", "Commands") if "signoff " in words]
    listed = {" ".join(re.findall(r"^[a-z-]+|(?<= )[a-z]+(?= |$)", words)) for words in written}
    assert listed == there


def test_every_command_has_one_kind() -> None:
    found = re.findall(r"^- Commands of ([a-z ]+): (.*?)\.", page("docs/commands.md"), re.MULTILINE | re.DOTALL)
    kinds = {kind: set(names(words)) for kind, words in found}
    assert sum(map(len, kinds.values())) == len(COMMANDS)
    assert set().union(*kinds.values()) == set(COMMANDS)
    over_http = {name for name, (module, _) in COMMANDS.items() if module.startswith("signoff.cli.http.")}
    assert kinds["people"] | kinds["coding agents"] == over_http


def test_commands_in_blocks_can_be_typed() -> None:
    targets = set(re.findall(r"^([a-z]+):", page("Makefile"), re.MULTILINE))
    seen = 0
    for line in (line for path in PAGES for line in shell_lines(path)):
        words = shlex.split(line.removeprefix(".venv/bin/"), comments=True)
        if words[:1] == ["make"]:
            assert words[1] in targets
        if words[:1] == ["signoff"]:
            subs = _subcommands(words[1])
            command = subs[words[2]] if subs else _load_command(words[1])
            options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
            assert {word for word in words if word.startswith("-")} <= options, line
        seen += words[:1] in (["make"], ["signoff"])
    assert seen > 5


def test_every_setting_is_documented_with_its_default(clean_env: pytest.MonkeyPatch) -> None:
    settings = load_settings()
    rows = {names(row[0])[0]: names(row[1]) for row in tables("docs/settings.md", "Settings")}
    assert set(rows) == {ENV_PREFIX + name.upper() for name in type(settings).model_fields}
    for name, value in settings:
        plain = "" if value is None else json.dumps(value) if isinstance(value, bool | tuple) else str(value)
        assert "".join(rows[ENV_PREFIX + name.upper()]) == plain, name


def test_every_search_attribute_is_documented_with_its_type() -> None:
    listed = {names(row[0])[0]: row[1] for row in tables("docs/temporal.md", "Search attributes")}
    assert listed == dict(SEARCH_ATTRIBUTES)


def test_every_limit_is_documented_with_its_value() -> None:
    there = {name: value for name, value in vars(limits).items() if name.isupper() and name not in ("KIB", "MIB")}
    rows = [row for group, name in LIMIT_GROUPS.items() for row in tables(f"docs/{name}", group)]
    assert {names(row[0])[0]: _number(row[0].partition("` ")[2]) for row in rows} == there
    assert len(rows) == len(there)


def _number(text: str) -> float:
    amount, _, unit = text.replace(",", "").partition(" ")
    return float(amount) * UNITS.get(unit, 1)


def test_every_gate_is_documented_in_order() -> None:
    listed = [names(row[0])[0] for row in tables("docs/concepts.md", "The gates, in order")]
    assert listed == list(get_args(GateName))


def test_every_section_of_the_manifest_is_documented() -> None:
    assert sorted(named("docs/manifest.md", "Sections")) == sorted(ManifestSection.model_fields)


def test_every_key_of_a_stricter_term_is_documented() -> None:
    [row] = [row for row in tables("docs/manifest.md", "Policies") if names(row[0]) == ["terms"]]
    assert set(re.findall(r"\w+", names(row[1])[0])) - {"CEL"} == set(TermRule.model_fields)


def test_table_of_tools_equals_their_declaration() -> None:
    made = tool_table()
    assert f"\n\n{made}\n\n" in page("docs/manifest.md"), f"put this below `## Tools`:\n{made}"


@table(
    ("name", "sections"),
    ("manifest.md", [ActorSection]),
    ("manifest.md", [ApprovalPolicy]),
    ("manifest.md", [GlobalRule]),
    ("manifest.md", [PersonSection]),
    ("manifest.md", [RoutingSection]),
    ("manifest.md", [ReachSection]),
    ("manifest.md", [nested_section(Autonomy)]),
    ("manifest.md", [nested_section(EscalationPath)]),
    ("external-calls.md", [nested_section(Callbacks)]),
    ("routes.md", [RouteSection, StepSection]),
    ("events.md", [SubscriptionSection]),
    ("mcp.md", [ToolServerSection]),
)
def test_tables_of_keys_equal_their_declaration(name: str, sections: list[type[BaseModel]]) -> None:
    made = section_table(*sections)
    assert f"\n\n{made}\n\n" in page(f"docs/{name}") + "\n", f"put this table into docs/{name}:\n{made}"


def test_every_tool_field_is_documented() -> None:
    fields = {field.name for field in dataclasses.fields(Tool)}
    assert fields - CODE_ONLY == set(named("docs/manifest.md", "Tools")) - FILE_ONLY
    assert fields >= CODE_ONLY
    assert all(f"`{name}`" in page("docs/manifest.md") for name in CODE_ONLY)


@table(("name", "least"), ("security.md", 100), ("internal/security-tests.md", 200))
def test_every_proof_of_the_security_pages_is_a_test(name: str, least: int) -> None:
    proofs = re.findall(r"\[`(test_\w+)`\]\((?:\.\./)+(tests/[\w/]+\.py)\)", page(f"docs/{name}"))
    assert len(proofs) > least
    for name, file in proofs:
        assert re.search(rf"^(async )?def {name}\(", page(file), re.MULTILINE), f"{file} has no {name}"


def test_every_code_of_a_receipt_is_explained_with_its_http_status() -> None:
    listed = {names(row[0])[0]: int(row[1]) for row in tables("docs/approvals.md", "Receipts")}
    codes = [code for code in get_args(ReceiptCode) if code]
    assert listed == {code: receipt_status(Receipt(status="refused", code=code)) for code in codes}


def test_every_operation_is_listed_with_its_scope() -> None:
    every = gateway_routes(load_plugin_routers(PLUGIN_NAMES))
    routes = [route for route in every if getattr(route, "include_in_schema", False)]
    operations = [(route, access_of(route)) for route in routes if isinstance(route, APIRoute)]
    wanted = [
        [f"`{method} {route.path}`", route.summary, "none" if access.scope is None else f"`{access.scope}`"]
        for route, access in operations
        for method in sorted(route.methods)
    ]
    stands = "\n".join(f"| {' | '.join(row)} |" for row in wanted)
    assert tables("docs/http-api.md", "Every operation") == wanted, stands
    assert len(wanted) > 50


def test_every_field_of_remarks_is_documented() -> None:
    described = get_openapi(title="Signoff", version="1", routes=gateway_routes(load_plugin_routers(PLUGIN_NAMES)))
    shapes = described["components"]["schemas"]
    fields = [
        f"{shape}.{name}"
        for shape in sorted(shapes.keys() - {"Remark"})
        for name, schema in shapes[shape].get("properties", {}).items()
        if "/Remark" in json.dumps(schema)
    ]
    assert named("docs/http-api.md", "Notes and remarks") == fields


def test_documented_remark_equals_its_sentence() -> None:
    remark, sentence = blocks_below(ROOT / "docs" / "http-api.md", "Notes and remarks")
    assert english(Remark.model_validate_json(remark)) == sentence.strip()


def test_each_concept_is_explained_once() -> None:
    words = re.findall(r"^\| \*\*(.+?)\*\*", page("docs/concepts.md"), re.MULTILINE)
    assert len(words) == len(set(words)) > 40
