import ast
import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from documents import PAGES, ROOT, blocks
from tables import table

import signoff
from signoff.contracts import errors
from signoff.contracts.errors import SignoffError
from signoff.temporal.embedded_server import ServerHandle

FACES = (
    "signoff",
    "signoff.calls",
    "signoff.channels",
    "signoff.people",
    "signoff.plugins",
    "signoff.testing",
    "signoff.tools",
)
FACE = {
    "DeclaredActor",
    "App",
    "ApprovalPolicy",
    "ApprovalRequest",
    "Catalog",
    "Client",
    "CloudEvent",
    "Decision",
    "GrantRequest",
    "Receipt",
    "Tool",
    "ToolContext",
    "ToolDenied",
    "ToolFailure",
    "ToolResult",
    "TurnHandle",
    "Tools",
    "load_manifest",
    "tool",
}
EXAMPLES = [path for path in sorted((ROOT / "examples").rglob("*.py")) if "demo" not in path.parts]


def test_public_api_is_these_names_and_every_error() -> None:
    every = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, SignoffError)}
    assert set(signoff.__all__) == {"__version__", *FACE, *every}


@table("face", *FACES)
def test_every_public_name_exists_and_is_known_to_type_checkers(face: str) -> None:
    module = import_module(face)
    page_text = {
        alias.name: imported.module
        for branch in ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body
        if isinstance(branch, ast.If)
        for imported in branch.body
        if isinstance(imported, ast.ImportFrom)
        for alias in imported.names
    }
    assert page_text == module._MODULES
    assert [name for name in module.__all__ if getattr(module, name) is None] == []
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(module, "nothing")  # noqa: B009  (a type checker knows that it is not there)


@pytest.mark.parametrize("face", FACES)
def test_import_of_the_public_api_loads_none_of_its_names(face: str) -> None:
    code = f"import json, sys; import {face} as face; print(json.dumps([[*sys.modules], [*face._MODULES.values()]]))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded, modules = json.loads(shown)
    assert set(loaded).isdisjoint({*modules, "pydantic", "temporalio"})


async def test_name_first_loaded_in_the_sandbox_is_the_same_object(server: ServerHandle, task_queue: str) -> None:
    """A second copy of its module would give the whole process another class, so that raised errors are not caught."""
    # In a separate process, because a loaded module cannot be loaded again.
    command = (sys.executable, str(ROOT / "tests" / "face_workflow.py"), server.address, task_queue)
    shown = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert (shown.returncode, shown.stdout.split()) == (0, ["asked", "same"]), shown.stderr


def imported(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name for name in names if name.partition(".")[0] == "signoff")


@table("path", *EXAMPLES, ids=lambda path: path.relative_to(ROOT / "examples").as_posix())
def test_examples_import_only_the_public_api(path: Path) -> None:
    assert set(imported(path.read_text(encoding="utf-8"))) <= set(FACES)


@table("path", *sorted((ROOT / "tests" / "designs").glob("test_*.py")), ids=lambda path: path.stem)
def test_examples_of_designs_import_only_the_public_api(path: Path) -> None:
    assert set(imported(path.read_text(encoding="utf-8"))) <= set(FACES)


@table("page", *PAGES, ids=lambda path: path.name)
def test_documents_import_only_the_public_api(page: Path) -> None:
    assert {name for block in blocks(page, "python") for name in imported(block.text)} <= set(FACES)


def test_deeper_import_is_noticed() -> None:
    assert [*imported("from signoff.registry.tool import Tool\nimport signoff.store.store")] == [
        "signoff.registry.tool",
        "signoff.store.store",
    ]
    assert isinstance(signoff, ModuleType)


def test_the_suite_of_channels_names_the_remedy_for_a_missing_pytest() -> None:
    code = (
        "import sys; sys.modules['pytest'] = None\n"
        "try:\n    from signoff.testing import ChannelSuite\nexcept ImportError as error:\n    print(error)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "`ChannelSuite` needs pytest: run `pip install pytest`\n"
