"""`eval record` and `eval run`."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from signoff.activities.models.drivers import build_driver
from signoff.activities.models.model_settings import model_settings
from signoff.audit.log import AuditLog
from signoff.audit.stream_report import find_stream
from signoff.cli.local.installation import LocalInstallation, find_installation, reach_server
from signoff.cli.terminal.options import Address, AppOption, AsJson
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.tables import clean
from signoff.contracts.errors import ConfigError, ModelRefused, NotFound, Unavailable
from signoff.engine.history_reader import load_history, read_history, specialist_results
from signoff.evaluation.case_file import PlacedCase, read_cases, write_cases
from signoff.evaluation.case_player import NOT_LOOKED_AT, CaseModel, PlayResult, find_misfits, play
from signoff.evaluation.case_recorder import case_from_history
from signoff.evaluation.difference import Difference, find_differences
from signoff.registry.actor import Actor
from signoff.store.store import working_store

OWN_MODEL: Final = "manifest"
MISFIT_CODE: Final = 2
CATALOG_CHARS: Final = 16
"""The length of a catalog hash, as in turns."""
_STYLES: Final = {True: "red", False: "yellow"}

app = typer.Typer(
    help="Replay past turns with new instructions, policies, tools or models.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@dataclass(frozen=True)
class _Played:
    placed: PlacedCase
    result: PlayResult
    differences: tuple[Difference, ...]

    @property
    def forbidden(self) -> int:
        return sum(each.forbidden for each in self.differences)


@app.command()
def record(
    turns: Annotated[list[str], typer.Argument(metavar="TURN...", help="Ids of finished turns, or their beginnings.")],
    source: AppOption = "",
    address: Address = None,
) -> None:
    """Print a case for each finished turn, as YAML: messages, calls, answers and decisions, with secrets hidden."""

    async def body(out: Output) -> int:
        place = find_installation(source)
        client = await reach_server(place.settings, address)
        cases = []
        async with working_store(place.settings) as store:
            log = AuditLog(store)
            streams = await log.streams()
            for text in turns:
                stream = find_stream(streams, text)
                history = await read_history(client, stream)
                if history is None:
                    raise NotFound(f"the server has no history of `{stream}`, or has deleted it")
                specialists = specialist_results(await log.stream(stream))
                cases.append(case_from_history(await load_history(store, history), place.catalog, specialists))
        out.write(write_cases(cases))
        return 0

    run(body)


@app.command("run")
def run_files(
    files: Annotated[list[Path], typer.Argument(metavar="CASES...", help="YAML files of cases, or folders of them.")],
    model: Annotated[
        str,
        typer.Option(
            "--model",
            help="Have this model complete, such as openai:gpt-5, or `manifest` for each actor's own; "
            "else the recorded completions are played.",
        ),
    ] = "",
    source: AppOption = "",
    as_json: AsJson = False,
) -> None:
    """Replay cases with today's manifest, without running or asking anything: 1 for a forbidden difference, 2 for a
    misfit.
    """

    async def body(out: Output) -> int:
        place = find_installation(source)
        cases, misfits = _read_all(files)
        played = []
        for placed in cases:
            wrong = find_misfits(placed.case, place.catalog)
            if wrong:
                misfits += [f"{placed.where}: {why}" for why in wrong]
                continue
            actor = place.catalog.actor(placed.case.actor)
            try:
                result = await play(placed.case, place.catalog, await _model_of(place, actor, model))
            except (ModelRefused, Unavailable) as error:
                # The model's behaviour is unknown: this is neither a difference nor a match.
                misfits.append(f"{placed.where}: {error.message}")
                continue
            played.append(_Played(placed, result, find_differences(placed.case, result, actor)))
        catalog = place.catalog.hash[:CATALOG_CHARS]
        data = {"catalog": catalog, "cases": [_json(each) for each in played], "misfits": misfits}
        out.show(data, *_words(played, misfits))
        return MISFIT_CODE if misfits else int(any(each.forbidden for each in played))

    run(body, as_json=as_json)


def _read_all(paths: Iterable[Path]) -> tuple[list[PlacedCase], list[str]]:
    cases: list[PlacedCase] = []
    misfits: list[str] = []
    for path in paths:
        files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
        if not files:
            misfits.append(f"{path}: there is no `*.yaml` in this folder")
        for file in files:
            try:
                found, wrong = read_cases(file)
            except ConfigError as error:
                misfits.append(error.message)
                continue
            cases += found
            misfits += wrong
    return cases, misfits


async def _model_of(place: LocalInstallation, actor: Actor, model: str) -> CaseModel | None:
    if not model:
        return None
    name = actor.model if model == OWN_MODEL else model
    settings = await model_settings(actor, place.secrets) if name == actor.model else {}
    return CaseModel(name, build_driver(name), settings)


def _json(played: _Played) -> dict[str, Any]:
    case = played.placed.case
    return {
        "case": case.name,
        "where": played.placed.where,
        "recorded": case.recorded.model_dump(),
        "passed": not played.forbidden,
        "calls": [asdict(call) for call in played.result.calls],
        "ending": played.result.ending,
        "answer": played.result.answer,
        "unrecorded": played.result.unrecorded,
        "differences": [asdict(each) for each in played.differences],
    }


def _words(played: Sequence[_Played], misfits: Sequence[str]) -> list[RenderableType]:
    words: list[RenderableType] = []
    if any(each.differences for each in played):
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("Case", "Call", "Difference", "Was", "Now", "Why"):
            table.add_column(name, overflow="fold")
        for each in played:
            for difference in each.differences:
                table.add_row(*_row(each, difference))
        words.append(table)
    words += [Text(clean(f"misfit: {each}"), "red") for each in misfits]
    calls = [call for each in played for call in each.result.calls]
    would = Counter(call.verdict if call.verdict in ("run", "ask") else "end" for call in calls)
    unrecorded = sum(each.result.unrecorded for each in played)
    differing, forbidden = sum(len(each.differences) for each in played), sum(each.forbidden for each in played)
    words += [
        f"calls: {len(calls)}; would run: {would['run']}, be asked: {would['ask']}, be denied or refused: "
        f"{would['end']}; unrecorded: {unrecorded}",
        f"cases: {len(played)}; differences: {differing}, forbidden: {forbidden}; misfits: {len(misfits)}",
        NOT_LOOKED_AT,
    ]
    return words


def _row(played: _Played, difference: Difference) -> tuple[RenderableType, ...]:
    call = f"{difference.call} {difference.tool}".strip()
    allowed = "warning" if difference.kind == "prompt" else "allowed"
    kind = difference.kind if difference.forbidden else f"{difference.kind} ({allowed})"
    return (
        Text(clean(played.placed.case.name)),
        Text(clean(call)),
        Text(kind, _STYLES[difference.forbidden]),
        Text(clean(difference.was)),
        Text(clean(difference.now)),
        Text(clean(difference.why)),
    )
