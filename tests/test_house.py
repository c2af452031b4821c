import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import grimp
import pytest
from documents import PACKAGE, parsed
from tables import table

import signoff
from tools import mutants
from tools.release.locks import FOLDER, LOCKS, Lock

ROOT = Path(__file__).resolve().parent.parent
AT_THE_TOP = (
    *(".ci", ".github", "activities", "clients", "deploy", "docs", "examples", "registry", "src", "tests", "tools"),
    "workflows",
)
"""The directories of the repository."""
LINKED = ("activities", "registry", "worker.py", "workflows")
"""Top-level parts of the package. `src/signoff` has a link to each."""
REGISTRY_HOSTS = ("pypi" + ".org", "python" + "hosted.org", "registry.npm" + "js.org", "proxy.go" + "lang.org")
MODULES_IN_A_DIRECTORY = 25
OWN_JSON = {
    "plugins/aap/approval_request.py": "the gateway wrote it into the store",
    "gateway/codec/routes.py": "a payload of a history, which is shown and not acted on",
    "gateway/pages/turn_view.py": "the record's own facts",
    "gateway/signed_state.py": "sealed by the gateway",
}
"""Modules that read their own JSON, each with its source."""
MACHINE_PATH = re.compile(r"(?<![\w./-])(?:/wo" + r"rk/|/ro" + r"ot/|/ho" + r"me/\w|file:" + "///opt)")


def committed_texts() -> dict[str, str]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    texts = {}
    for name in filter(None, listing.split("\0")):
        path = ROOT / name
        if path.is_symlink() or not path.is_file():
            continue
        data = path.read_bytes()
        if b"\0" not in data:
            texts[name] = data.decode(errors="replace")
    return texts


def package_parts() -> list[str]:
    folders = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    return sorted(folders + [path.name for path in PACKAGE.glob("*.py") if path.name != "__init__.py"])


def test_repository_has_no_other_top_level_directory() -> None:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    folders = {name.partition("/")[0] for name in listing.split("\0") if "/" in name}
    assert folders - set(AT_THE_TOP) == set()
    assert [path.name for path in ROOT.glob("*.py")] == ["worker.py"]


def test_package_has_four_links_to_the_top_level() -> None:
    links = {path.name: path.readlink() for path in (ROOT / "src" / "signoff").iterdir() if path.is_symlink()}
    assert links == {name: Path("../..") / name for name in LINKED}
    assert [name for name in LINKED if not (ROOT / name).exists()] == []


@table("part", *package_parts())
def test_map_names_every_part(part: str) -> None:
    place = part if part in LINKED else f"src/signoff/{part}"
    assert f"](../../{place})" in (ROOT / "docs" / "internal" / "architecture.md").read_text(encoding="utf-8")


@table("name", *sorted(mutants.AREAS))
def test_mutation_sources_and_tests_exist(name: str) -> None:
    """A moved path would be skipped."""
    area = mutants.AREAS[name]
    package = mutants.PACKAGES[area.package]
    assert [each for each in area.sources if not list(package.glob(each))] == []
    assert [each for each in area.tests if not (ROOT / "tests" / each).exists()] == []


def package_modules() -> list[Path]:
    return [path for path in all_modules() if "versions" not in path.parts]


def all_modules() -> list[Path]:
    """A walk over the package would not follow its links."""
    parts = [PACKAGE / part for part in package_parts()]
    modules = [path for part in parts for path in (sorted(part.rglob("*.py")) if part.is_dir() else [part])]
    assert len(modules) > 100
    return modules


def test_public_class_names_are_unique() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in package_modules():
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_directories_hold_at_most_25_modules() -> None:
    counts = Counter(str(path.parent.relative_to(PACKAGE)) for path in package_modules() if path.name != "__init__.py")
    assert {name: count for name, count in counts.items() if count > MODULES_IN_A_DIRECTORY} == {}


def import_contracts() -> list[dict[str, Any]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [*project["tool"]["importlinter"]["contracts"]]


def test_import_contract_lists_every_part_once() -> None:
    layered = next(contract for contract in import_contracts() if contract["type"] == "layers")
    layers = [name.strip() for layer in layered["layers"] for name in re.split("[|:]", layer)]
    assert len(layers) == len(set(layers))
    assert layered["exhaustive"] is True
    assert set(layers) == {part.removesuffix(".py") for part in package_parts()} - set(layered["exhaustive_ignores"])


@table(
    "name", "workflows imports", "calls imports", "the client imports", "telemetry imports", "commands of people import"
)
def test_import_contract_forbids_every_lower_part_that_its_name_omits(name: str) -> None:
    contracts = import_contracts()
    layers = [re.findall(r"\w+", layer) for layer in next(each["layers"] for each in contracts if "layers" in each)]
    [contract] = [each for each in contracts if each["name"].startswith(name)]
    source = contract["source_modules"][0].split(".")[1]
    place = next(number for number, layer in enumerate(layers) if source in layer)
    lower = {part for layer in layers[place + 1 :] for part in layer}
    allowed = set(re.findall(r"\w+", contract["name"].removeprefix(name)))
    assert lower - allowed - {part.removeprefix("signoff.") for part in contract["forbidden_modules"]} == set()


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = grimp.build_graph("signoff", cache_dir=None)
    order = TopologicalSorter({each: graph.find_modules_directly_imported_by(each) for each in graph.modules})
    assert len([*order.static_order()]) > 600


def test_import_of_signoff_is_light() -> None:
    code = "import json, sys; import signoff; print(json.dumps([*sys.modules]))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    ours = {name for name in json.loads(shown) if name.partition(".")[0] in ("signoff", "pydantic", "temporalio")}
    light = ("contracts", "contracts.names", "formats", "formats.lazy_names")
    assert ours == {"signoff", *(f"signoff.{name}" for name in light)}


def test_version_equals_the_project_file() -> None:
    assert f'version = "{signoff.__version__}"' in (ROOT / "pyproject.toml").read_text()


def test_no_committed_file_names_a_package_registry() -> None:
    found = [(name, host) for name, text in committed_texts().items() for host in REGISTRY_HOSTS if host in text]
    assert found == []


def test_no_committed_file_holds_a_path_of_one_machine() -> None:
    found = {name: hit.group() for name, text in committed_texts().items() if (hit := MACHINE_PATH.search(text))}
    assert found == {}


def test_models_are_changed_only_with_replace() -> None:
    """`model_copy(update=...)` keeps an unknown name next to the intended field. `replace` refuses it."""
    changes = re.compile(r"\bmodel_copy\(\s*update\b")
    python = {name: text for name, text in committed_texts().items() if name.endswith(".py")}
    found = {name for name, text in python.items() if changes.search(text) and not name.startswith("clients/")}
    assert found - {"tests/test_house.py"} == {"src/signoff/formats/replace.py"}


def test_no_two_test_files_have_one_name() -> None:
    """Test directories are no packages, so of two files with one name only one would run."""
    counted = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert counted
    assert [name for name, number in counted.items() if number > 1] == []


def test_constraints_are_names_and_versions_only() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)] == []
    declared = re.findall(r'^    "([A-Za-z0-9._-]+)', (ROOT / "pyproject.toml").read_text(), re.M)
    assert {"temporalio", "pytest", "ruff"} <= set(_pinned()) & set(declared)


@table("lock", *LOCKS, ids=lambda lock: lock.name)
def test_lock_holds_the_hash_of_every_file_and_no_host(lock: Lock) -> None:
    text = (FOLDER / f"{lock.name}.txt").read_text()
    block = r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+(?: ; [^\\\n]+)?(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n"
    assert re.fullmatch(f"(?:{block})+", text)
    versions = _versions(text)
    assert {name: _pinned().get(name) for name in versions} == versions


def test_locks_hold_every_declared_requirement() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for lock in LOCKS:
        files = [f"{name}.txt" for name in (*lock.over, lock.name)]
        locked = {name for file in files for name in _versions((FOLDER / file).read_text())}
        wanted = [*lock.more, *(project["dependencies"] if lock.extras else ())]
        wanted += [each for extra in lock.extras for each in project["optional-dependencies"][extra]]
        names = {_normal(re.split(r"[\[<>=!~; ]", each, maxsplit=1)[0]) for each in wanted} - {"signoff"}
        assert names - locked == set(), lock.name


@table("file", "Makefile", "Dockerfile")
def test_nothing_is_installed_without_a_hash(file: str) -> None:
    text = (ROOT / file).read_text().replace("\\\n", " ")
    text = re.sub(r"^(PIP|LOCKED) := .*$", "", text, flags=re.M)
    commands = [part for line in text.splitlines() for part in line.split("&&") if not line.startswith("#")]
    installs = [each for each in commands if re.search(r"\$\((PIP|LOCKED)\)|pip (install|wheel)", each)]
    assert len(installs) >= 4
    assert [each for each in installs if not re.search(r"\$\(LOCKED\)|--require-hashes|--no-deps", each)] == []


def _pinned() -> dict[str, str]:
    return _versions((ROOT / "constraints.txt").read_text())


def _versions(text: str) -> dict[str, str]:
    return {_normal(name): version for name, version in re.findall(r"^([^\s=]+)==([^\s;\\]+)", text, re.M)}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _branches_on_a_version(path: Path) -> list[str]:
    found = []
    functions = (ast.AsyncFunctionDef, ast.FunctionDef)
    for function in (node for node in ast.walk(parsed(path)) if isinstance(node, functions)):
        for node in ast.walk(function):
            names = {getattr(each, "attr", "") or getattr(each, "id", "") for each in ast.walk(node)}
            if isinstance(node, ast.Compare) and "engine" in names and function.name != "run":
                found.append(f"{path.name}:{function.name}: engine")
            if isinstance(node, ast.Call) and names & {"patched", "deprecate_patch"}:
                found.append(f"{path.name}:{function.name}: patched")
    return found


@table("path", *sorted((PACKAGE / "workflows").glob("*.py")), ids=lambda path: path.name)
def test_no_workflow_branches_on_a_version(path: Path) -> None:
    """A branch on a patch or a version after a local activity makes unreadable histories.

    If a query ends the workflow task just as the local activity ends, the marker is written to another task than the
    searched one."""
    assert _branches_on_a_version(path) == []


def test_branch_on_a_version_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "turn.py"
    path.write_text("def answer(self):\n    return self.turn.engine >= 2 or workflow.patched('x')\n")
    assert _branches_on_a_version(path) == ["turn.py:answer: engine", "turn.py:answer: patched"]


_TIMES = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today")}
_TIMES |= {("time", "time"), ("time", "time_ns")}
CLOCK = PACKAGE / "contracts" / "clock.py"


def _times_of_day(path: Path) -> list[str]:
    found = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Attribute):
            # For `datetime.datetime.now`, the second to last name.
            of = getattr(node.value, "attr", "") or getattr(node.value, "id", "")
            if (of, node.attr) in _TIMES:
                found.append(f"{path.name}:{node.lineno} {of}.{node.attr}")
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            found += [f"{path.name}:{node.lineno} {each.name}" for each in node.names if ("time", each.name) in _TIMES]
    return found


def test_only_the_clock_reads_the_time_of_day() -> None:
    assert [each for path in all_modules() if path != CLOCK for each in _times_of_day(path)] == []
    assert [each.partition(" ")[2] for each in _times_of_day(CLOCK)] == ["datetime.now"]


def test_no_workflow_uses_the_machines_clock() -> None:
    assert [path.name for path in (PACKAGE / "workflows").rglob("*.py") if "contracts.clock" in path.read_text()] == []


def test_use_of_the_time_of_day_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "late.py"
    path.write_text("import datetime\nfrom time import time\nx = datetime.datetime.now(), datetime.date.today\n")
    assert sorted(_times_of_day(path)) == ["late.py:2 time", "late.py:3 date.today", "late.py:3 datetime.now"]


def _plain_json_readers(path: Path) -> list[str]:
    found = []
    for node in ast.walk(parsed(path)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        named = node.func
        is_module = isinstance(named.value, ast.Name) and named.value.id == "json"
        is_answer = named.attr == "json" and not (node.args or node.keywords)
        if is_answer or (is_module and named.attr in ("load", "loads")):
            found.append(f"{path.name}:{node.lineno}")
    return found


@pytest.mark.parametrize("part", ["channels", "cli", "gateway", "plugins"])
def test_every_input_is_read_with_read_json(part: str) -> None:
    """Other readers take the last of two equal names, so a check and the call could see different values."""
    modules = [path for path in package_modules() if path.relative_to(PACKAGE).parts[0] == part]
    assert modules
    own = {PACKAGE / name for name in OWN_JSON}
    assert [each for path in modules if path not in own for each in _plain_json_readers(path)] == []
    assert [path.name for path in own if not _plain_json_readers(path)] == []


_ARGUMENTS = re.compile(r"(?:\w+_)?args|arguments|tool_input")
"""Names of variables, fields and keys that hold the arguments of a tool."""


def _holds_arguments(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
            return _ARGUMENTS.fullmatch(name) is not None or (
                isinstance(node, ast.Subscript) and _holds_arguments(node.value)
            )
        case ast.Subscript(value=whole) | ast.Starred(value=whole):
            return _holds_arguments(whole)
        case ast.Call(func=ast.Name(id="dict" | "list" | "tuple"), args=[whole, *_]):
            return _holds_arguments(whole)
        case ast.Call(func=ast.Attribute(value=whole, attr="model_dump" | "get" | "items" | "values")):
            return _holds_arguments(whole)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return any(map(_holds_arguments, parts))
    return False


def _equal_arguments(path: Path) -> list[str]:
    found = []
    for node in ast.walk(parsed(path)):
        if not isinstance(node, ast.Compare) or not any(isinstance(each, ast.Eq | ast.NotEq) for each in node.ops):
            continue
        sides = (node.left, *node.comparators)
        # Text equals no other type.
        is_text = any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in sides)
        if not is_text and any(map(_holds_arguments, sides)):
            found.append(f"{path.name}:{node.lineno} {ast.unparse(node)}")
    return found


def test_arguments_of_tools_are_compared_only_in_canonical_form() -> None:
    others = [path for part in ("clients/python", "examples") for path in sorted((ROOT / part).rglob("*.py"))]
    modules = [*package_modules(), *others]
    assert len(modules) > 100
    assert [each for path in modules for each in _equal_arguments(path)] == []


@pytest.mark.parametrize(
    "comparison",
    [
        "args != event.tool_input",
        "args != body.args",
        "request.args == call.args",
        "dict(checked.corrected.args) == args",
        "asked.args == approved",
        "(call.tool, dict(call.status.args)) == (item.tool_name, read(item))",
        "(turn.call.tool, await load(turn.call.args)) != (body.tool, proposal.args)",
        "self.given.body['arguments'] != permit",
        "before.args.get(name) != after.args.get(name)",
        "args['amount'] == shown",
        "decision.edited_args == before",
    ],
)
def test_comparison_of_arguments_by_equality_is_noticed(tmp_path: Path, comparison: str) -> None:
    """Most of these were once in the code."""
    path = tmp_path / "equal.py"
    path.write_text(f"async def f():\n    return {comparison}\n")
    assert len(_equal_arguments(path)) == 1


@table("part", *[each for each in package_parts() if not each.endswith(".py")])
def test_each_package_directory_has_a_readme_with_valid_links(part: str) -> None:
    page = PACKAGE / part / "README.md"
    text = page.read_text(encoding="utf-8")
    assert 10 <= len(text.splitlines()) <= 30
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    place = (ROOT / part if part in LINKED else page.parent).resolve()
    assert [link for link in links if not (place / link).exists()] == []


@table("folder", "deploy", "docs/internal", "examples", "src", "tests", "tools")
def test_each_top_level_directory_has_a_readme_with_valid_links(folder: str) -> None:
    page = ROOT / folder / "README.md"
    text = page.read_text(encoding="utf-8")
    assert 10 <= len(text.splitlines()) <= 30
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []
