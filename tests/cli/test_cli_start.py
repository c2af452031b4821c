"""The modules loaded by a command, because users wait for each start."""

import gc
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from signoff.cli.main import COMMANDS, invoke, pause_collector
from tools.bench.scale.commands import MANIFEST_COMMANDS, write_project

ENGINE = ("sqlalchemy", "celpy", "cel_expr_python", "lark", "temporalio", "fastapi", "starlette")
"""Libraries for a server, a store, a manifest or the gateway's pages: a person's command needs none of them."""
FOLDERS = {"approvals", "cli", "client", "contracts", "formats", "languages", "texts"}
"""All packages of Signoff that a person's command loads."""
LIGHT = {"cli", "client", "contracts", "formats"}
"""All packages of Signoff that a hook loads."""

PERSONS = (
    ("inbox",),
    ("approve", "K7Q-2FM"),
    ("deny", "K7Q-2FM", "--reason", "no"),
    ("answer", "K7Q-2FM", "{}"),
    ("happened", "K7Q-2FM"),
    ("withdraw", "K7Q-2FM"),
    ("question", "K7Q-2FM", "Why?"),
    ("reassign", "K7Q-2FM", "ana"),
    ("add-approver", "K7Q-2FM", "ana"),
    ("away", "--until", "2030-01-31T18:00:00Z"),
    ("decisions", "list"),
    ("decisions", "export"),
    ("decisions", "stats"),
    ("ask", "hello"),
    ("show", "K7Q-2FM"),
    ("turns",),
    ("watch", "main.s.t"),
    ("cancel", "main.s.t"),
    ("chat", "hello"),
    ("sessions",),
    ("grants", "list"),
    ("grants", "revoke", "g1"),
    ("freeze", "main", "--reason", "stop"),
    ("unfreeze", "main"),
    ("events", "list"),
    ("events", "follow"),
    ("events", "failed"),
    ("events", "retry"),
    ("mcp-stdio", "coder"),
)

TELL = """
import json, sys
from signoff.cli.main import invoke
for arguments in json.loads(sys.argv[1]):
    code = invoke(arguments)
    parts = {".".join(name.split(".")[:2]) for name in sys.modules if name.startswith("signoff.")}
    print("loaded", code, *sorted(parts | {name.partition(".")[0] for name in sys.modules}))
"""


def loaded_by(*commands: Sequence[str], **environment: str) -> tuple[list[tuple[int, set[str]]], str]:
    """The packages are all those loaded so far, Signoff's by directory. The last text is standard error."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SIGNOFF_", "TEMPORAL_"))}
    program = [sys.executable, "-c", TELL, json.dumps(commands)]
    ran = subprocess.run(program, env=kept | environment, input="{}", capture_output=True, text=True, check=True)
    lines = [line.split() for line in ran.stdout.splitlines() if line.startswith("loaded ")]
    return [(int(code), set(names)) for _, code, *names in lines], ran.stderr


def test_persons_command_loads_nothing_of_the_engine() -> None:
    commands = [(*each, "--url", "http://127.0.0.1:1") for each in PERSONS]
    found, result = loaded_by(*commands, SIGNOFF_TOKEN="s")
    assert result.count("no gateway answers at http://127.0.0.1:1") == len(PERSONS), result
    for arguments, (code, loaded) in zip(PERSONS, found, strict=True):
        assert code == 1, arguments
        assert {"httpx2", "pydantic", "signoff.client"} <= loaded
        assert loaded.isdisjoint({*ENGINE, "pydantic_settings"}), (arguments, loaded & set(ENGINE))
        assert {name.removeprefix("signoff.") for name in loaded if name.startswith("signoff.")} <= FOLDERS


def test_hook_loads_no_data_models() -> None:
    [(code, loaded)], printed = loaded_by(["hook", "codex", "--url", "http://127.0.0.1:1"])
    assert (code, "no gateway answers" in printed) == (2, True)
    assert loaded.isdisjoint({*ENGINE, "pydantic_settings", "httpx2", "rich"})
    assert {name for name in loaded if name.startswith("signoff.")} <= {f"signoff.{name}" for name in LIGHT}


def test_version_and_help_load_only_typer() -> None:
    for code, loaded in loaded_by(["--version"], ["--help"])[0]:
        assert (code, "typer" in loaded) == (0, True)
        assert loaded.isdisjoint({*ENGINE, "pydantic", "pydantic_settings", "httpx2", "rich"})


SERVERS = ("sqlalchemy", "temporalio", "fastapi", "starlette", "uvicorn", "cryptography", "pydantic_ai", "mcp")
"""Libraries for a store, a server, keys and models: a command that reads a manifest needs none of them."""


def test_command_that_reads_a_manifest_loads_neither_store_nor_server(tmp_path: Path) -> None:
    manifest = write_project(tmp_path)
    found, printed = loaded_by(*MANIFEST_COMMANDS, SIGNOFF_MANIFEST=str(manifest))
    for arguments, (code, loaded) in zip(MANIFEST_COMMANDS, found, strict=True):
        assert code == 0, (arguments, printed)
        assert {"celpy", "cel_expr_python", "jsonschema", "signoff.registry"} <= loaded
        assert loaded.isdisjoint({*SERVERS, "signoff.store", "signoff.engine", "signoff.gateway"}), arguments


def test_worker_and_gateway_load_the_engine() -> None:
    """A name that nothing loads would prove nothing above. Only the gateway serves pages."""
    (_, worker), (_, both) = loaded_by(["worker", "--help"], ["gateway", "--help"])[0]
    assert both.issuperset(ENGINE), set(ENGINE) - both
    assert worker & set(ENGINE) == {*ENGINE} - {"fastapi", "starlette"}


def test_every_command_of_a_person_is_in_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    persons = {name for name, (module, _) in COMMANDS.items() if module.startswith("signoff.cli.http.")}
    # A coding agent's command is not a person's.
    assert persons - {"hook"} == {arguments[0] for arguments in PERSONS}
    for arguments in PERSONS:
        assert invoke([*arguments, "--help"]) == 0
        assert "--url" in capsys.readouterr().out, arguments


def test_loading_restores_the_garbage_collector() -> None:
    assert gc.isenabled()
    with suppress(ImportError), pause_collector():
        within = gc.isenabled()
        raise ImportError
    assert (within, gc.isenabled()) == (False, True)
    gc.disable()
    try:
        with pause_collector():
            within = gc.isenabled()
        assert (within, gc.isenabled()) == (False, False)
    finally:
        gc.enable()
