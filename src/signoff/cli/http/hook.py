"""`hook`: connects a coding agent to a gateway, for hosts whose hooks are commands."""

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import typer

from signoff.cli.terminal.errors import sentence
from signoff.cli.terminal.options import Url
from signoff.client.address import find_gateway, find_token
from signoff.contracts.errors import Refused, ServerUnavailable
from signoff.contracts.names import TERMINAL_AGENT
from signoff.formats.json_reader import NotJson, read_json
from signoff.formats.web_address import is_loopback

BLOCKED: Final = 2
"""The exit code that blocks a call, with the reason on standard error. After any other code the call runs."""
HOLD_SECONDS: Final = 50.0
_GRACE_SECONDS: Final = 15.0
"""The gateway's additional time beyond the hold."""
_REPORTS: Final = ("PostToolUse", "PostToolUseFailure")
"""Events of calls that have already run: a hook cannot block them."""


class HookHostName(StrEnum):
    """The coding agent that runs the hook."""

    CLAUDE_CODE = "claude-code"
    CODEX = "codex"


Host = Annotated[HookHostName, typer.Argument(help="The coding agent, which decides the format of answers.")]
Hold = Annotated[float, typer.Option(min=0, help="Seconds to wait for people; 20 less than the hook's time-out.")]
Defer = Annotated[bool, typer.Option("--defer", help="End a `claude -p` run that waits, to be resumed later.")]
Agent = Annotated[str, typer.Option(help="In development, the agent of the calls; optional with one agent.")]
User = Annotated[str, typer.Option(help="The requester's id; optional if the agent acts for one person.")]

app = typer.Typer(rich_markup_mode=None)


@app.command()
def hook(
    host: Host, hold: Hold = HOLD_SECONDS, defer: Defer = False, agent: Agent = "", user: User = "", url: Url = None
) -> None:
    """Read a hook's input, ask the gateway, and print the hook's answer.

    Exit code 2 blocks the call and prints the reason on standard error, also if no gateway answers.
    """
    event = ""
    try:
        given = sys.stdin.buffer.read()
        event = _event(given)
        options = {"hold": hold, "defer": "true" if defer else "", "agent": agent, "user": user}
        answer = _ask(f"/v1/hooks/{host.value}", options, given, hold, url)
    except Exception as error:
        # Any other exit code would let the call run.
        typer.echo(f"signoff: {sentence(error)}", err=True)
        raise typer.Exit(1 if event in _REPORTS else BLOCKED) from None
    typer.echo(json.dumps(answer))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: the token would follow them."""

    def redirect_request(self, *_: Any) -> None:
        """Make the redirect itself the answer."""


def _ask(path: str, options: Mapping[str, object], given: bytes, hold: float, url: str | None) -> dict[str, Any]:
    token = find_token()
    gateway = find_gateway(url, token=token)
    query = urlencode({name: value for name, value in options.items() if value != ""})
    headers = {"content-type": "application/json", "user-agent": TERMINAL_AGENT, "accept-language": "en"}
    if token:
        headers["authorization"] = f"Bearer {token}"
    request = urllib.request.Request(f"{gateway}{path}?{query}", data=given, headers=headers, method="POST")
    # A proxy cannot reach this machine's loopback address.
    proxies = [urllib.request.ProxyHandler({})] if is_loopback(gateway) else []
    opener = urllib.request.build_opener(_NoRedirects, *proxies)
    try:
        with opener.open(request, timeout=hold + _GRACE_SECONDS) as reply:
            return _object(reply.read(), gateway)
    except urllib.error.HTTPError as error:
        raise _refusal(error, gateway) from None
    except OSError as error:
        why = getattr(error, "reason", error)
        raise ServerUnavailable(f"no gateway answers at {gateway} ({why}); nothing was run") from None


def _refusal(error: urllib.error.HTTPError, gateway: str) -> Refused | ServerUnavailable:
    try:
        message = _object(error.read(), gateway)["message"]
    except (ServerUnavailable, KeyError, OSError):
        message = f"the gateway at {gateway} answered {error.code}"
    return Refused(f"{message}; nothing was run")


def _object(text: bytes, gateway: str) -> dict[str, Any]:
    try:
        found = read_json(text)
    except NotJson:
        found = None
    if not isinstance(found, dict):
        raise ServerUnavailable(f"what answers at {gateway} is no gateway of this version: check the address")
    return found


def _event(given: bytes) -> str:
    try:
        found = read_json(given)
    except NotJson:
        return ""
    return str(found.get("hook_event_name", "")) if isinstance(found, dict) else ""
