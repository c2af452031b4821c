import socket
from pathlib import Path

import pytest
from cli_kit import Cli, assert_one_sentence
from served_stack import MANIFEST

from signoff.cli.main import COMMANDS
from signoff.cli.terminal import errors
from signoff.cli.terminal.errors import sentence
from signoff.contracts.errors import ConfigError, StoreUnavailable
from signoff.temporal.embedded_server import ServerHandle, free_port

MANIFESTS = {
    "unknown key": ("version: 1\nacters: {}\n", "signoff.yaml:2: unknown key `acters`"),
    "unknown tool of an actor": (
        'version: 1\ndefaults: {model: "scripted:x:y"}\nactors:\n  clerk:\n    tools: [pay]\n',
        "signoff.yaml:5: actor `clerk` lists the unknown tool `pay`",
    ),
    "no such handler": (
        "version: 1\ntools:\n  pay: {handler: 'nowhere:pay', scope: generalist}\n",
        "signoff.yaml:3: `handler` of tool `pay`: cannot import `nowhere`",
    ),
    "not YAML": ("version: [1\n", "signoff.yaml:"),
    "nobody can approve": (
        f"version: 1\npath: ['{MANIFEST.parent}']\ntools:\n  pay:\n    handler: cli_project_tools:pay\n"
        "    scope: generalist\n    requires_approval: {approvers: ['role:nobody']}\n",
        "tool `pay` asks `role:nobody`, but no active person is one of them: add one to `people` of the manifest,",
    ),
}


@pytest.mark.parametrize("case", MANIFESTS)
async def test_wrong_manifest_is_reported_in_one_sentence_with_its_line(cli: Cli, tmp_path: Path, case: str) -> None:
    text, message = MANIFESTS[case]
    (tmp_path / "signoff.yaml").write_text(text)
    command = ("manifest", "validate") if case != "nobody can approve" else ("doctor",)
    ran = await cli(*command)
    if case == "nobody can approve":
        assert (ran.code, message in ran.out) == (1, True)
    else:
        assert message in assert_one_sentence(ran)


async def test_missing_manifest_is_reported_with_the_remedy(cli: Cli) -> None:
    message = assert_one_sentence(await cli("tools", "list"))
    assert message == "there is no manifest `signoff.yaml` here: name a program, `MODULE:APP`, or a manifest"
    mistyped = assert_one_sentence(await cli("tools", "list", "sign-off.yaml"))
    assert mistyped == "there is no manifest `sign-off.yaml` here: check the path"


async def test_missing_server_is_reported_with_the_remedy(cli: Cli, clean_env: pytest.MonkeyPatch) -> None:
    clean_env.setenv("SIGNOFF_MANIFEST", str(MANIFEST))
    port = free_port()
    message = assert_one_sentence(await cli("worker", "--address", f"127.0.0.1:{port}"))
    assert message.startswith(f"no Temporal server answers at `127.0.0.1:{port}`: start one with `signoff dev`")


@pytest.mark.parametrize("command", [("inbox",), ("turns",), ("ask", "look"), ("approve", "K7Q-2FM")])
async def test_missing_gateway_is_reported_with_the_remedy(
    cli: Cli, clean_env: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    port = free_port()
    clean_env.setenv("SIGNOFF_PORT", str(port))
    message = assert_one_sentence(await cli(*command))
    assert message == f"no gateway answers at http://127.0.0.1:{port}: `signoff dev` or `signoff gateway` starts one"


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("SIGNOFF_PORT", "many", "the gateway's address is `http://127.0.0.1:many`"),
        ("SIGNOFF_PUBLIC_URL", "approvals", "a web address looks like https://approvals.example.com"),
        ("SIGNOFF_TOKEN", "sgf_\u00e9", "SIGNOFF_TOKEN does not hold a valid token"),
    ],
)
async def test_invalid_address_or_token_is_reported(
    cli: Cli, clean_env: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    clean_env.setenv(variable, value)
    assert message in assert_one_sentence(await cli("inbox"))


async def test_port_in_use_is_reported_with_the_setting(
    cli: Cli, clean_env: pytest.MonkeyPatch, server: ServerHandle
) -> None:
    clean_env.setenv("SIGNOFF_MANIFEST", str(MANIFEST))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        message = assert_one_sentence(await cli("dev", "--temporal-port", port))
        assert "SIGNOFF_TEMPORAL_PORT" in message
        assert port in message
        own_port = str(free_port())
        message = assert_one_sentence(await cli("dev", "--temporal-port", own_port, "--ui-port", port))
        assert "SIGNOFF_UI_PORT" in message
        message = assert_one_sentence(await cli("gateway", "--address", server.address, "--port", port))
        assert "SIGNOFF_PORT" in message


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("SIGNOFF_PORT", "many", "`SIGNOFF_PORT` is `many`"),
        ("SIGNOFF_PROFILE", "production", "`profile` is `production`"),
        ("SIGNOFF_STORE_URL", "mysql://x/y", "store_url speaks `mysql`"),
        ("SIGNOFF_MANIFESTT", "x", "did you mean `SIGNOFF_MANIFEST`"),
        ("SIGNOFF_STATE_DIR", "/proc/nowhere", "SIGNOFF_STATE_DIR"),
    ],
)
async def test_wrong_setting_is_reported_with_its_variable(
    cli: Cli, clean_env: pytest.MonkeyPatch, server: ServerHandle, variable: str, value: str, message: str
) -> None:
    clean_env.setenv("SIGNOFF_MANIFEST", str(MANIFEST))
    clean_env.setenv(variable, value)
    assert message in assert_one_sentence(await cli("worker", "--address", server.address))


@pytest.mark.parametrize(
    "command",
    [
        ("inbx",),
        ("deny",),
        ("ask",),
        ("turns", "--limit", "0"),
        ("policy", "explain", "pay", "--args", "{"),
        ("policy", "explain", "pay", "--args", "[1]"),
        ("tools", "explain", "pay", "--args", '{"amount": NaN}'),
        ("ask", "look", "--session", "not an id"),
        ("tools", "lst"),
        ("dev", "--port", "70000"),
    ],
)
async def test_invalid_invocation_exits_with_2(
    cli: Cli, clean_env: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    clean_env.setenv("SIGNOFF_MANIFEST", str(MANIFEST))
    ran = await cli(*command)
    assert (ran.code, ran.out) == (2, "")
    assert "Traceback" not in ran.err
    assert "Error: " in ran.err


@pytest.mark.parametrize(
    ("command", "other"),
    [
        (("approve", "K7Q-2FM", "--user", "bo"), "--as"),
        (("ask", "hi", "--user", "bo"), "--as"),
        (("mcp-stdio", "coder", "--as", "bo"), "--user"),
    ],
)
async def test_error_suggests_as_or_user_if_a_command_has_only_one(
    cli: Cli, command: tuple[str, ...], other: str
) -> None:
    refused = await cli(*command)
    assert (refused.code, f"(Possible options: {other})" in refused.err) == (2, True), refused.err


async def test_mistyped_command_suggests_the_nearest(cli: Cli) -> None:
    assert "Did you mean 'inbox'?" in (await cli("inbx")).err


async def test_unexpected_error_names_the_file_with_its_traceback(
    cli: Cli, clean_env: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clean_env.setattr("signoff.client.client.find_token", lambda given: 1 / 0)
    message = assert_one_sentence(await cli("inbox"))
    assert message == "something unexpected went wrong (ZeroDivisionError); the details are in `.signoff/errors.log`"
    log = tmp_path / ".signoff" / "errors.log"
    assert "ZeroDivisionError" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0


def test_error_group_shows_our_own_error(clean_env: pytest.MonkeyPatch) -> None:
    group = ExceptionGroup("both", [ValueError("x"), ExceptionGroup("inner", [StoreUnavailable("the store is away")])])
    assert sentence(group) == "the store is away"
    assert sentence(ConfigError("wrong")) == "wrong"


def test_error_log_moves_if_the_state_directory_is_read_only(clean_env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_env.setenv("SIGNOFF_STATE_DIR", "/proc/nowhere")
    clean_env.setattr(errors.tempfile, "gettempdir", lambda: str(tmp_path))
    message = sentence(KeyError("x"))
    assert f"`{tmp_path}/signoff-" in message
    assert [path for path in tmp_path.iterdir() if "KeyError" in path.read_text()]


@pytest.mark.parametrize("name", COMMANDS)
async def test_every_command_has_help(cli: Cli, name: str) -> None:
    ran = await cli(name, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"Usage: signoff {name} ")


async def test_help_lists_every_command(cli: Cli) -> None:
    listed = (await cli("--help")).out
    assert [
        name for name, (_, words) in COMMANDS.items() if f"  {name}" not in listed or words[:30] not in listed
    ] == []
