"""`away`: says that a person is away, or back."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from signoff.cli.http.gateway_client import gateway_client
from signoff.cli.terminal.options import Answerer, AsJson, Url
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.tables import clean
from signoff.contracts.person import Absence

app = typer.Typer(rich_markup_mode=None)


@app.command()
def away(
    until: Annotated[str, typer.Option(help="The end, such as 2030-01-31T18:00:00Z. Without it, list absences.")] = "",
    since: Annotated[str, typer.Option("--from", help="The beginning; now by default.")] = "",
    tools: Annotated[list[str] | None, typer.Option("--tool", help="Only for this tool; repeatable.")] = None,
    to: Annotated[str, typer.Option(help="A person to ask instead.")] = "",
    back: Annotated[bool, typer.Option("--back", help="Say that you are back.")] = False,
    person: Answerer = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Say that you are away: your cards wait for your return if enough others may decide. Lists absences by default."""
    begins, ends = _read_time(since, "--from"), _read_time(until, "--until")

    async def body(out: Output) -> int:
        async with gateway_client(url) as client:
            if back:
                found = await client.come_back(by=person)
            elif ends is not None:
                found = [await client.go_away(ends, since=begins, tools=tools or (), to=to, by=person)]
            else:
                found = await client.absences()
        out.show(found, *(map(_line, found) if found else ["no person is away"]))
        return 0

    run(body, as_json=as_json)


def _read_time(given: str, option: str) -> datetime | None:
    if not given:
        return None
    try:
        moment: datetime | None = datetime.fromisoformat(given)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise typer.BadParameter("write a time and its zone, 2030-01-31T18:00:00Z", param_hint=option)
    return moment


def _line(absence: Absence) -> str:
    tools = f" for {', '.join(map(clean, absence.tools))}" if absence.tools else ""
    instead = f"; ask {clean(absence.to)}" if absence.to else ""
    begins, ends = (f"{each.astimezone(UTC):%Y-%m-%d %H:%M}" for each in (absence.since, absence.until))
    return f"{clean(absence.person)} is away from {begins} to {ends} UTC{tools}{instead}"
