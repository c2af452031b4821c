"""`audit`: verify, export and read the audit log, sign checkpoints, and retire old turns."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, TextIO
from urllib.parse import quote

import typer
from rich.table import Table
from temporalio.client import Client, WorkflowExecutionStatus

from signoff.approvals.argument_rows import plural
from signoff.approvals.audit_events import admin_entry
from signoff.audit.agentack_export import trace
from signoff.audit.checkpoints import Checkpoint, Checkpoints
from signoff.audit.export import Export, export_lines, iterate, read_export, write_checkpoint
from signoff.audit.log import AuditLog
from signoff.audit.retention import RetiredStream, retire
from signoff.audit.stream_report import ReportLine, StreamReport, find_stream, report_stream
from signoff.audit.timeline import is_claim
from signoff.audit.verifier import VerificationReport, verify, verify_stream, with_heads
from signoff.cli.local.installation import account, reach_server
from signoff.cli.terminal.options import Address, AsJson, Before, Url, past_moment
from signoff.cli.terminal.output import Output, run
from signoff.client.address import find_token
from signoff.client.client import Client as GatewayClient
from signoff.contracts.audit import AuditEntry
from signoff.contracts.clock import system_clock
from signoff.contracts.errors import ConfigError, Refused
from signoff.contracts.ids import TurnKey
from signoff.engine.store_cleanup import read_status
from signoff.keys.key_files import read_private, read_public
from signoff.keys.signatures import Signer, Verifier
from signoff.settings import load_settings
from signoff.store.store import Store, working_store

app = typer.Typer(help="The audit log.", no_args_is_help=True, rich_markup_mode=None)


class ExportFormat(StrEnum):
    """The format of an export."""

    JSONL = "jsonl"
    AGENTACK = "agentack"


_NO_CHECKPOINT: Final = "no checkpoint: records cut off at the end of a turn cannot be detected"


@app.command("verify")
def verify_record(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="An export; else this store.")] = None,
    kept: Annotated[
        Path | None, typer.Option("--checkpoint", help="A checkpoint that was kept elsewhere.", show_default=False)
    ] = None,
    keys: Annotated[
        Path | None, typer.Option("--keys", help="The file of public keys; else the setting's.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that no record is missing, changed or out of place. Exit code 1 names the first such record."""

    async def body(out: Output) -> int:
        settings = load_settings()
        verifier = _verifier(keys or settings.public_keys, given=keys is not None)
        point = None if kept is None else _read_checkpoint(kept)
        if file is None:
            async with working_store(settings) as store:
                report = await _of_store(store, verifier, point)
            notes, complete = list[str](), True
        else:
            given = _read(file)
            report, notes, complete = await _of_export(given, verifier, point), _shortcomings(given), given.complete
        out.show(_report_json(report, notes), *_report_words(report), *notes)
        return 0 if complete and report.finding is None else 1

    run(body, as_json=as_json)


@app.command()
def export(
    to: Annotated[Path | None, typer.Option("--out", help="The file to write; else it is printed.")] = None,
    turn: Annotated[str, typer.Option("--turn", help="Only this turn, without checkpoints.")] = "",
    tenant: Annotated[str, typer.Option("--tenant", help="Only this tenant, without checkpoints.")] = "",
    form: Annotated[
        ExportFormat, typer.Option("--format", help="`agentack`: one turn as a trace for `agentack check`.")
    ] = ExportFormat.JSONL,
) -> None:
    """Print or write the audit log as JSON lines. `audit verify FILE` checks them anywhere."""

    async def body(out: Output) -> int:
        count = 0
        if form is ExportFormat.AGENTACK and (tenant or not turn):
            raise Refused("a trace is of one turn: name it by --turn, and no tenant")
        settings = load_settings()
        async with working_store(settings) as store:
            stream = await _stream(AuditLog(store), turn) if turn else ""
            if form is ExportFormat.AGENTACK:
                lines = iterate(await _trace(store, stream, _verifier(settings.public_keys, given=False)))
            else:
                lines = export_lines(store, tenant=tenant, stream=stream)
            with _create(to) if to is not None else nullcontext(sys.stdout) as file:
                async for line in lines:
                    file.write(line + "\n")
                    count += 1
        if to is not None:
            out.say(f"{count} lines written to {to}")
        return 0

    run(body)


@app.command()
def show(
    turn: Annotated[
        str, typer.Argument(metavar="TURN", help="A turn's id or its beginning; or a tenant's `admin/main`.")
    ],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show the records of a turn, in order. Exit code 1 if they were changed."""

    async def body(out: Output) -> int:
        if url is None and not find_token():
            settings = load_settings()
            async with working_store(settings) as store:
                stream = await _stream(AuditLog(store), turn)
                report = await report_stream(store, stream, _verifier(settings.public_keys, given=False))
        else:
            async with GatewayClient(url) as client:
                # Keep the slash of a stream such as `admin/main`: the route takes the rest of the path.
                report = await client.get(StreamReport, f"/v1/audit/{quote(turn.strip())}")
        finding = report.finding
        claims = sum(map(is_claim, report.records))
        sound = f"unchanged: {len(report.records)} records, none changed or missing"
        sound += f"; {claims} of them only reported by the turn and not verified" if claims else ""
        verdict = finding.message if finding else sound
        out.show(report, report.stream, _table(report.timeline), verdict)
        return 1 if finding else 0

    run(body, as_json=as_json)


@app.command()
def checkpoint(
    to: Annotated[
        Path | None, typer.Option("--out", help="The file to write it to; keep it on another machine.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Sign a checkpoint: a statement of how far the audit log has come. Needs the gateway's private key."""

    async def body(out: Output) -> int:
        settings = load_settings()
        signer = Signer(read_private(settings.signing_keys))
        async with working_store(settings) as store:
            points = Checkpoints(store)
            # `take` returns `None` if nothing is new: the last checkpoint still covers everything.
            found = await points.take(signer) or await points.last()
        if found is None:
            raise Refused("nothing is recorded yet, so there is nothing to state")
        if to is not None:
            with _create(to) as file:
                file.write(write_checkpoint(found) + "\n")
        statement = found.statement
        words = [
            f"checkpoint {statement.number} of {_time(statement.made_at)}, {len(statement.heads)} streams grown",
            f"hash {statement.hash}, signed by key {found.key_id}",
            *([f"written to {to}: keep it where who owns the database cannot write"] if to is not None else []),
        ]
        out.show({"number": statement.number, "hash": statement.hash, "key_id": found.key_id}, *words)
        return 0

    run(body, as_json=as_json)


@app.command("retire")
def retire_old(
    before: Before,
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Remove whole turns that ended before a time. A signed record of each remains.

    Export the audit log first: this cannot be undone. Needs the gateway's private key, and the server, which knows
    whether a turn has ended.
    """
    limit = past_moment(before)

    async def body(out: Output) -> int:
        settings = load_settings()
        signer = Signer(read_private(settings.signing_keys))
        client = await reach_server(settings, address)
        async with working_store(settings) as store:
            report = await _of_store(store, _verifier(settings.public_keys, given=False), None)
            if report.finding is not None:
                # Otherwise a deleted record could pass for a retired one.
                raise Refused(f"{report.finding.message}: nothing was taken out, see `signoff audit verify`")
            # Cover the records by a checkpoint before their removal, and the remaining ones right after.
            await Checkpoints(store).take(signer)
            gone = await retire(store, signer, limit, at=system_clock(), is_over=partial(_is_over, client))
            await AuditLog(store).append(_retirements(gone, limit))
            await Checkpoints(store).take(signer)
        count = sum(each.records for each in gone)
        found = {"before": limit.isoformat(), "turns": [each.turn.workflow_id for each in gone], "records": count}
        out.show(found, f"{plural(len(gone), 'turn')} retired, {plural(count, 'record')} of before {_time(limit)}")
        return 0

    run(body, as_json=as_json)


async def _is_over(client: Client, turn: TurnKey) -> bool:
    """The server forgets no running turn. Raises `ServerUnavailable`."""
    return await read_status(client, turn.workflow_id) != WorkflowExecutionStatus.RUNNING


def _retirements(gone: Sequence[RetiredStream], before: datetime) -> list[AuditEntry]:
    counts = Counter(each.turn.tenant for each in gone)
    when, who = before.isoformat(), account()
    return [
        admin_entry(tenant, "retire", "", system_clock(), before=when, turns=counts[tenant], account=who)
        for tenant in sorted(counts)
    ]


async def _of_store(store: Store, verifier: Verifier, kept: Checkpoint | None) -> VerificationReport:
    points = Checkpoints(store)
    # Keep this order: the second reading certainly has all streams of the first.
    heads = await points.heads()
    report = await verify(AuditLog(store).records(), points.all(), verifier, heads=heads, kept=kept)
    return with_heads(report, await points.heads()) if report.headless else report


async def _of_export(export: Export, verifier: Verifier, kept: Checkpoint | None) -> VerificationReport:
    return await verify(iterate(export.records), iterate(export.checkpoints), verifier, kept=kept)


def _shortcomings(export: Export) -> list[str]:
    notes = [] if export.complete else ["the export is incomplete: its last lines are missing"]
    if not export.whole:
        notes.append("an export of one tenant or turn has no checkpoints: records cut off at an end are not detected")
    return notes


def _verifier(path: Path, *, given: bool) -> Verifier:
    # Without checkpoints no key is needed. With checkpoints, the verifier reports the missing key.
    return Verifier(read_public(path).keys if given or path.exists() else ())


def _read(path: Path) -> Export:
    try:
        return read_export(path)
    except OSError as error:
        raise ConfigError(f"`{path}` cannot be read: {error.strerror}", file=str(path)) from None


def _read_checkpoint(path: Path) -> Checkpoint:
    found = _read(path).checkpoints
    if len(found) != 1:
        raise Refused(f"`{path}` is not one checkpoint as `signoff audit checkpoint --out` writes it")
    return found[0]


def _create(path: Path) -> TextIO:
    try:
        return path.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise ConfigError(f"`{path}` cannot be written: {error.strerror}", file=str(path)) from None


async def _trace(store: Store, stream: str, verifier: Verifier) -> list[str]:
    """Raise `Refused` if the turn's records were changed."""
    records = await AuditLog(store).stream(stream)
    heads = {head.stream: head for head in await Checkpoints(store).heads()}
    finding = verify_stream(records, heads.get(stream), verifier)
    if finding is not None:
        raise Refused(f"{finding.message}: see `signoff audit verify`")
    return trace(records)


async def _stream(log: AuditLog, text: str) -> str:
    return find_stream(await log.streams(), text)


def _report_json(report: VerificationReport, notes: Iterable[str]) -> dict[str, Any]:
    finding = report.finding
    return {
        "whole": finding is None,
        "finding": None if finding is None else finding._asdict(),
        "streams": report.streams,
        "records": report.records,
        "checkpoints": report.checkpoints,
        "covered_at": report.covered_at,
        "uncovered": report.uncovered,
        "notes": list(notes),
    }


def _report_words(report: VerificationReport) -> list[str]:
    if report.finding is not None:
        return [f"{report.finding.fault}: {report.finding.message}"]
    records, streams = plural(report.records, "record"), plural(report.streams, "stream")
    words = [f"verified: {records} in {streams}, none changed, missing or out of place"]
    if report.covered_at is None:
        return [*words, _NO_CHECKPOINT] if report.records else ["nothing is recorded yet"]
    since = _time(report.covered_at)
    checkpoints, newer = plural(report.checkpoints, "checkpoint"), plural(report.uncovered, "newer record")
    words.append(f"{checkpoints}, the last of {since}; {newer}")
    return words


def _table(lines: Iterable[ReportLine]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for name in ("at", "who", "what"):
        table.add_column(name, no_wrap=name != "what", overflow="fold")
    for line in lines:
        table.add_row(line.at, line.who, line.what)
    return table


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")
