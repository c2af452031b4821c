"""The entry point: the table of commands, and the one place that turns errors into sentences and exit codes."""

import gc
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final, NoReturn

import typer
from typer._click.exceptions import NoSuchOption
from typer.core import TyperGroup

from signoff.cli.terminal.errors import sentence
from signoff.contracts.names import VERSION

COMMANDS: Final = {
    "init": ("signoff.cli.local.init", "Write a first project: a manifest, a tool, a script for a model, a test."),
    "dev": ("signoff.cli.local.dev", "Run everything here: Temporal's server, a worker and the inbox."),
    "ask": ("signoff.cli.http.turns", "Start a turn and follow it."),
    "chat": ("signoff.cli.http.sessions", "Talk to an actor, one message after another."),
    "sessions": ("signoff.cli.http.sessions", "List sessions, or read one."),
    "inbox": ("signoff.cli.http.inbox", "List waiting requests."),
    "show": ("signoff.cli.http.turns", "Show a request (by id or code) or a turn."),
    "approve": ("signoff.cli.http.inbox", "Approve a request."),
    "deny": ("signoff.cli.http.inbox", "Deny a request with a reason."),
    "answer": ("signoff.cli.http.inbox", "Answer a request in place of its call."),
    "happened": ("signoff.cli.http.inbox", "Report that a call of unknown outcome happened."),
    "question": ("signoff.cli.http.inbox", "Ask the agent about its waiting request."),
    "withdraw": ("signoff.cli.http.inbox", "Withdraw a request, so that its call does not run."),
    "decisions": ("signoff.cli.http.decisions", "Search, export and count past requests."),
    "reassign": ("signoff.cli.http.inbox", "Hand a request on to another approver."),
    "add-approver": ("signoff.cli.http.inbox", "Require one more approval of a request."),
    "away": ("signoff.cli.http.away", "Say that you are away, or back."),
    "turns": ("signoff.cli.http.turns", "List turns, newest first."),
    "watch": ("signoff.cli.http.turns", "Watch a turn until it ends."),
    "cancel": ("signoff.cli.http.turns", "Ask a turn to stop."),
    "grants": ("signoff.cli.http.grants", "List and revoke remembered answers."),
    "freeze": ("signoff.cli.http.freeze", "Deny everything in a tenant, at once."),
    "unfreeze": ("signoff.cli.http.freeze", "Lift a freeze."),
    "events": ("signoff.cli.http.events", "Read and follow events."),
    "hook": ("signoff.cli.http.hook", "Ask as a hook of a coding agent whether its call may run."),
    "mcp-stdio": ("signoff.cli.http.mcp_stdio", "Serve a host of MCP that starts its servers itself."),
    "manifest": ("signoff.cli.local.manifest", "Check, show and compare manifests, and print their schema."),
    "mcp": ("signoff.cli.local.mcp", "Import the tools of MCP servers, and show changes."),
    "tools": ("signoff.cli.local.tools", "List and explain the tools of a manifest."),
    "policy": ("signoff.cli.local.policy", "Check, test and explain policies."),
    "eval": ("signoff.cli.local.evaluation", "Replay past turns with new instructions, policies or tools."),
    "audit": ("signoff.cli.local.audit", "Verify, export and read the audit log."),
    "people": ("signoff.cli.local.people", "List and check the people of the directory."),
    "channels": ("signoff.cli.local.channels", "List, check and try the channels of the manifest."),
    "token": ("signoff.cli.local.token", "Make, list and revoke personal tokens."),
    "keys": ("signoff.cli.local.keys", "Make, list, retire and export the keys that prove decisions."),
    "store": ("signoff.cli.local.store", "Bring the store's tables up to date and give its roles their rights."),
    "worker": ("signoff.cli.local.worker", "Run a worker alone."),
    "gateway": ("signoff.cli.local.gateway", "Run the gateway with its inbox alone."),
    "codec": (
        "signoff.cli.local.codec",
        "Run the codec server for Temporal's UI and command line.",
    ),
    "temporal-ui": ("signoff.cli.local.temporal_ui", "Run the proxy that keeps web pages away from Temporal's UI."),
    "doctor": ("signoff.cli.local.doctor", "Check this installation and suggest repairs."),
}
"""Maps each command to its module and help text. Modules are imported on use, which keeps help fast."""


_PERSON_OPTIONS: Final = {"--user": "--as", "--as": "--user"}
"""Maps each option that names a person to its counterpart in other commands."""


class _Lazy(TyperGroup):
    """Imports only the module of the invoked command."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, _load_command(name) if name in COMMANDS else command, rest

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except NoSuchOption as error:
            other = _PERSON_OPTIONS.get(error.option_name, "")
            if error.ctx is not None and any(other in each.opts for each in error.ctx.command.params):
                error.possibilities = [other]
            raise


app = typer.Typer(
    cls=_Lazy,
    help="Durable human approval of agents' actions, on Temporal.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"signoff {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
    ] = False,
) -> None: ...


def invoke(arguments: Sequence[str]) -> int:
    """Print an error as one sentence on standard error.

    Returns 0 (done), 1 (failed or refused) or 2 (bad invocation).
    """
    try:
        app(args=list(arguments), prog_name="signoff")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BrokenPipeError:
        # The reader of the output, such as `head`, has left: no one can read a message.
        return 1
    except Exception as error:
        # Last resort: for an unexpected error write the traceback to a file, not to the terminal.
        print(f"signoff: {sentence(error)}", file=sys.stderr)
        return 1
    return 0


def main() -> NoReturn:
    # Stays off until the command is loaded, see `pause_collector`.
    gc.disable()
    code = invoke(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    # Temporal's native threads can abort an interpreter that exits normally, which would hide the exit code.
    os._exit(code)


@contextmanager
def pause_collector() -> Iterator[None]:
    """Stop the garbage collector for a block that only imports.

    Imports create hundreds of thousands of objects that all live on. Scanning them would take a third of the start
    time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _load_command(name: str) -> Any:
    with pause_collector():
        module = importlib.import_module(COMMANDS[name][0])
    if not gc.isenabled():
        # `main` switched the collector off: all objects so far live as long as the process.
        gc.freeze()
        gc.enable()
    found = typer.main.get_command(module.app)
    return found.commands.get(name, found) if isinstance(found, TyperGroup) else found


def _make_placeholder() -> Callable[..., None]:
    return lambda: None


# Placeholders: help lists them without imports, and `_Lazy` replaces the invoked one by the real command.
for _name, (_, _words) in COMMANDS.items():
    app.command(_name, help=_words)(_make_placeholder())

if __name__ == "__main__":
    main()
