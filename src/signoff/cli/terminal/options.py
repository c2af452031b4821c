"""Options shared by many commands."""

from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from signoff.contracts.clock import system_clock

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs, and nothing else.")]
_SOURCE: Final = "The program, or the file or folder of a manifest; else SIGNOFF_APP, else signoff.yaml."
AppArgument = Annotated[str, typer.Argument(metavar="[MODULE:APP]", help=_SOURCE, show_default=False)]
AppOption = Annotated[str, typer.Option("--app", metavar="MODULE:APP", help=_SOURCE, show_default=False)]
"""The program, for commands with other arguments. `find_installation` resolves both."""
Address = Annotated[
    str | None,
    typer.Option("--address", help="A running Temporal server, host:port; else TEMPORAL_*.", show_default=False),
]
Before = Annotated[str, typer.Option(help="A day or time, `2026-01-31` or `2026-01-31T18:00:00Z`; days begin in UTC.")]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="The gateway to ask; else that of the settings. The token is in SIGNOFF_TOKEN.",
        show_default=False,
    ),
]
UnsafeOpen = Annotated[
    bool,
    typer.Option("--unsafe-open", help="Serve other machines in the development profile, which asks for no sign-in."),
]
Tenant = Annotated[str, typer.Option("--tenant", help="The tenant; `main` unless there are several.")]
Model = Annotated[
    str, typer.Option("--model", help="Ask this model where the manifest names a script, such as openai:gpt-5.")
]
Asker = Annotated[str, typer.Option("--as", help="The requester's id; else `guest`, or the token's owner.")]
Answerer = Annotated[str, typer.Option("--as", help="The approver's id; else `approver`, or the token's owner.")]
Operator = Annotated[str, typer.Option("--as", help="The acting person's id; else `approver`, or the token's owner.")]
Stopper = Annotated[str, typer.Option("--as", help="The acting person's id; else nameless, or the token's owner.")]
"""The person in the development profile, which has no sign-in."""


def past_moment(text: str) -> datetime:
    """Raise `BadParameter` for a text that is no time, or a time in the future."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"`{text}` is no day or time: write `2026-01-31`", param_hint="--before") from None
    found = found.replace(tzinfo=UTC) if found.tzinfo is None else found
    if found > system_clock():
        raise typer.BadParameter(f"`{text}` is not over yet", param_hint="--before")
    return found
