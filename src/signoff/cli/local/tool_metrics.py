"""`tools metrics`: how each tool did, out of the record."""

from datetime import timedelta
from typing import Annotated

import typer
from rich.table import Table

from signoff.audit.record import moment_text
from signoff.audit.tool_metrics import ENDINGS, ToolMetrics, tool_metrics
from signoff.cli.terminal.inputs import read_duration
from signoff.cli.terminal.options import AsJson
from signoff.cli.terminal.output import Output, run
from signoff.contracts.clock import system_clock
from signoff.settings import load_settings


def metrics(
    since: Annotated[str, typer.Option(help="How far back: 30d, 12h.")] = "30d",
    tenant: Annotated[str, typer.Option("--tenant", help="Only this tenant.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show how each tool did, failures as well: runs, what they ended with, time and cost; from the record."""
    # The store's libraries take half a second to import: the other commands of `tools` do without.
    from signoff.audit.log import AuditLog  # noqa: PLC0415
    from signoff.store.store import working_store  # noqa: PLC0415

    begin = moment_text(system_clock() - timedelta(seconds=read_duration(since, "--since")))

    async def body(out: Output) -> int:
        async with working_store(load_settings()) as store:
            found = await tool_metrics(AuditLog(store).records(tenant=tenant, since=begin, kinds=ENDINGS))
        out.show(found, _table(found) if found else "nothing ran")
        return 0

    run(body, as_json=as_json)


def _table(found: list[ToolMetrics]) -> Table:
    table = Table("tool", "runs", "ok", "failed", "mean", "longest", "cost", box=None, pad_edge=False)
    for each in found:
        failed = ", ".join(f"{count} {code}" for code, count in each.failed.items()) or "-"
        times = (f"{each.mean_ms:g} ms", f"{each.longest_ms} ms")
        table.add_row(each.tool, str(each.runs), str(each.ok), failed, *times, f"{each.cost:g} USD")
    return table
