import ast
import re
from pathlib import Path

from documents import ROOT, blocks, blocks_below, links, page, parsed
from tables import table

CLIENT = ROOT / "clients" / "python" / "signoff_client"
PAGES = ("client.md", "external-calls.md")
BELOW = 'blocks_below(PAGE, "{}")'
RUN_BY = {
    ("client.md", "The client"): ("tests/clients/test_documented_client.py", 'blocks(PAGE, "python")[0]'),
    ("external-calls.md", "Declaring"): (
        "tests/test_fresh_install.py",
        "next(block for block in blocks(path",
    ),
    ("external-calls.md", "By curl"): ("tests/gateway/calls/test_documented_calls.py", "for line in shell_lines(PAGE)"),
    ("external-calls.md", "Claude Code, by its hooks"): ("tests/plugins/hooks/test_documented_hooks.py", BELOW),
    ("external-calls.md", "Claude Code, by MCP"): ("tests/plugins/mcp/test_documented_hosts.py", BELOW),
    ("external-calls.md", "Codex"): ("tests/plugins/hooks/test_documented_hooks.py", BELOW),
    # Tests of callbacks have their own manifests and receivers. The page's manifest is only loaded.
    ("external-calls.md", "Callbacks"): ("tests/test_document_examples.py", "load_manifest(tmp_path / block.file)"),
}
"""The test that runs the blocks below a heading, and the source text that reads them.

None needs a vendor's account: models are scripted, or use an endpoint of the test."""
PROGRAMS = {
    "strands_agent.py": ("tests/clients/programs/strands_program.py", "strands"),
    "agent_framework_agent.py": ("tests/clients/programs/agent_framework_program.py", "agent_framework"),
    "claude_agent.py": ("tests/clients/programs/claude_program.py", "claude"),
    "openai_agent.py": ("tests/clients/programs/openai_program.py", "openai"),
    "langchain_agent.py": ("tests/clients/programs/langchain_program.py", "langchain"),
    "signoff.mjs": ("tests/vercel_packages/program.mjs", "vercel"),
    "vercel_agent.mjs": ("tests/vercel_packages/program.mjs", "vercel"),
    "pydantic_ai_agent.py": ("tests/clients/test_pydantic_ai.py", ""),
    "temporal_worker.py": ("tests/clients/test_temporal_gate.py", ""),
}
"""The program of `test_frameworks.py` or the test that runs a shown or linked file of `examples/`."""
FOREIGN = {
    "activity_as_tool",
    "ApplicationError",
    "AsyncClient",
    "override",
    "reject",
    "ToolApproved",
    "ToolDenied",
    "ToolMessage",
}
"""Names of other packages. An adapter or a test uses each, and would fail without it."""


def headings_of(name: str) -> list[str]:
    text = re.sub(r"^```.*?^```$", "", page(f"docs/{name}"), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return [each for each in found for _ in blocks_below(ROOT / "docs" / name, each)]


@table("name", *PAGES)
def test_every_block_of_a_page_is_run_by_a_test(name: str) -> None:
    found = blocks(ROOT / "docs" / name)
    places = headings_of(name)
    assert len(found) == len(places)
    for block, heading in zip(found, places, strict=True):
        if block.file.startswith("examples/"):
            assert Path(block.file).name in PROGRAMS
            continue
        runner, words = RUN_BY[name, heading]
        assert words.format(heading) in page(runner), (runner, words)


@table("file", *PROGRAMS)
def test_every_program_of_a_page_is_run_by_a_test(file: str) -> None:
    runner, case = PROGRAMS[file]
    words = file if file.endswith(".mjs") else Path(file).stem
    assert words in page(runner)
    assert f'"{case}"' in page("tests/clients/test_frameworks.py") or not case


def test_no_test_is_listed_for_a_removed_block() -> None:
    shown = {(name, heading) for name in PAGES for heading in headings_of(name)}
    assert set(RUN_BY) - shown == set()


def test_every_program_of_a_page_is_listed_with_its_test() -> None:
    paths = [ROOT / "docs" / name for name in PAGES]
    files = {block.file for path in paths for block in blocks(path)} | {link for path in paths for link in links(path)}
    programs = {Path(file).name for file in files if "examples/external_agents/" in file}
    assert programs == set(PROGRAMS)


def calls_in_text() -> list[str]:
    text = "".join(re.sub(r"^```.*?^```$", "", page(f"docs/{name}"), flags=re.MULTILINE | re.DOTALL) for name in PAGES)
    spans = re.findall(r"`([^`\n]+\([^`\n]*\))`", text)
    return sorted({re.sub(r"^with ", "", each) for each in spans if "process.env" not in each})


def arguments_of(name: str) -> list[ast.arguments]:
    found: list[ast.arguments] = []
    for node in (each for path in CLIENT.rglob("*.py") for each in ast.walk(parsed(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            found.append(node.args)
        if isinstance(node, ast.ClassDef) and node.name == name:
            made = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
            fields = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
            names = [ast.arg(each.id) for each in fields if isinstance(each, ast.Name)]
            own = ast.arguments(posonlyargs=[], args=names, kwonlyargs=[], kw_defaults=[], defaults=[])
            found.append(made[0].args if made else own)
    return found


def takes(given: ast.Call, arguments: ast.arguments) -> bool:
    places = [each.arg for each in (*arguments.posonlyargs, *arguments.args) if each.arg != "self"]
    names = {*places, *(each.arg for each in arguments.kwonlyargs)}
    fits = arguments.vararg is not None or len(given.args) <= len(places)
    return fits and (arguments.kwarg is not None or {str(each.arg) for each in given.keywords} <= names)


@table("text", *calls_in_text())
def test_call_named_in_the_text_fits_the_client(text: str) -> None:
    tree = ast.parse(f"async def example():\n {text}")
    for call in (each for each in ast.walk(tree) if isinstance(each, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
        if name in FOREIGN or name == "memo_value":
            continue
        assert any(takes(call, arguments) for arguments in arguments_of(name)), name


def test_call_with_an_unknown_argument_is_noticed() -> None:
    wrong = ast.parse("gate.call('refund', waits=3)", mode="eval").body
    assert isinstance(wrong, ast.Call)
    assert not any(takes(wrong, arguments) for arguments in arguments_of("call"))
