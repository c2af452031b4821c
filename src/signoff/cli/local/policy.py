"""`policy check`, `policy test`, `policy explain` and `policy simulate`."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from signoff import policypool
from signoff.activities.hooks.policy_handlers import verdict_of
from signoff.approvals.redaction import hide
from signoff.cli.local.installation import find_installation
from signoff.cli.local.tools import call_context_of, find_problems, find_tool
from signoff.cli.terminal.inputs import read_duration, read_moment, read_object
from signoff.cli.terminal.options import Address, AppArgument, AppOption, AsJson, Asker, Tenant
from signoff.cli.terminal.output import Output, run
from signoff.contracts.clock import system_clock
from signoff.contracts.errors import ConfigError, Refused
from signoff.contracts.names import DEFAULT_TENANT
from signoff.formats.yaml_file import read_yaml
from signoff.languages.remarks import english
from signoff.policy.cases import PolicyCaseResult, run_cases
from signoff.policy.explanation import explain_json, explain_text
from signoff.registry.catalog import Catalog
from signoff.registry.tool import Tool

app = typer.Typer(help="Check, test and explain policies.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def check(source: AppArgument = "", as_json: AsJson = False) -> None:
    """Compile every policy and list the parts that could not be checked. Exit code 1 for any."""

    async def body(out: Output) -> int:
        place = find_installation(source)
        catalog, name = place.catalog, place.source
        notes = find_problems(catalog)
        hashes = {name: policy.hash for name, policy in catalog.policies.items()}
        words = [f"{name}: {note}" for note in notes] or [f"{name}: {len(hashes)} policies compiled, nothing to report"]
        out.show({"manifest": name, "policies": hashes, "rules": catalog.rules.hash, "findings": notes}, *words)
        return 1 if notes else 0

    run(body, as_json=as_json)


@app.command("test")
def run_file(
    cases: Annotated[Path, typer.Argument(metavar="CASES", help="A YAML list of cases.")],
    source: AppOption = "",
    as_json: AsJson = False,
) -> None:
    """Judge the cases of a YAML file (`name`, `tool`, `args`, `ctx`, `now`, `expect`, `quorum`); 1 if one fails."""
    policypool.install()

    async def body(out: Output) -> int:
        catalog = find_installation(source).catalog
        judged = run_cases(_read_cases(cases), catalog.policies, catalog.zone)
        results = [await _try_case(catalog, result) for result in judged]
        failed = [result for result in results if not result.passed]
        words: list[RenderableType] = [_failure(result) for result in failed]
        words.append(f"{len(results) - len(failed)} of {len(results)} cases are as expected")
        out.show([_case_json(result) for result in results], *words)
        return 1 if failed else 0

    run(body, as_json=as_json)


@app.command()
def explain(
    name: Annotated[str, typer.Argument(metavar="TOOL", help="The tool's exact name.")],
    args: Annotated[str, typer.Option(help="The call's arguments, as JSON.")],
    ctx: Annotated[str, typer.Option(help="The differences from the context, as JSON.")] = "{}",
    now: Annotated[
        str, typer.Option(help="When it is judged: 2026-11-21T10:00:00+01:00; at present if left out.")
    ] = "",
    person: Asker = "guest",
    tenant: Tenant = DEFAULT_TENANT,
    source: AppOption = "",
    as_json: AsJson = False,
) -> None:
    """Explain the verdict on a call: the rule, the answer of each engine, and the inputs."""
    given, differing = read_object(args, "--args"), read_object(ctx, "--ctx")
    at = read_moment(now, "--now") if now else system_clock()

    async def body(out: Output) -> int:
        place = find_installation(source)
        tool = find_tool(place.catalog, name)
        _check_arguments(tool, given)
        actor = next(iter(place.catalog.actors), "")
        seen_by = place.catalog.tool_view_at(call_context_of(place, actor, person, tenant), at)
        judged_by = _merge(seen_by.judged_ctx, differing)
        by_rules = place.catalog.policy(tool.activity).judge(given, judged_by, seen_by.actor_facts)
        verdict = await verdict_of(place.catalog, tool, given, judged_by, by_rules)
        inputs = {"args": hide(given, tool.masked_arguments, lambda _: "hidden"), "ctx": judged_by}
        out.show(
            {**explain_json(verdict), **inputs}, explain_text(verdict), f"args: {inputs['args']}", f"ctx: {judged_by}"
        )
        return 0

    run(body, as_json=as_json)


@app.command("simulate")
def simulate_file(
    source: AppArgument = "",
    since: Annotated[str, typer.Option(help="How far back: 30d, 12h.")] = "30d",
    tenant: Annotated[str, typer.Option("--tenant", help="Only the calls of this tenant.")] = "",
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Judge past calls by these policies: which calls that needed approval would run without it?"""
    policypool.install()
    begin = system_clock() - timedelta(seconds=read_duration(since, "--since"))

    async def body(out: Output) -> int:
        # It imports the clients of Temporal and the store, which take longer than to read a manifest.
        from signoff.cli.local.policy_simulation import show_simulation  # noqa: PLC0415

        await show_simulation(out, source, begin, tenant, address)
        return 0

    run(body, as_json=as_json)


def _read_cases(path: Path) -> list[dict[str, Any]]:
    file = read_yaml(path)
    if not isinstance(file.data, list):
        raise file.error((), "cases are a list, each with `name`, `tool`, `args`, `ctx` and `expect`")
    for index, each in enumerate(file.data):
        if not isinstance(each, dict):
            raise file.error((index,), "a case is a mapping with `name`, `tool`, `args`, `ctx` and `expect`")
    if not file.data:
        raise ConfigError(f"{path}: there is no case in it", file=str(path))
    return file.data


def _check_arguments(tool: Tool, args: dict[str, Any]) -> None:
    """Raise `Refused` for arguments that no policy would ever see."""
    problems = tool.schema.check(args)
    if problems:
        problem = english([each.words for each in problems[:5]])
        raise Refused(f"these are no arguments of `{tool.name}`: {problem}", code="input_invalid")


def _merge(base: dict[str, Any], differing: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in differing.items():
        inner = merged.get(key)
        merged[key] = _merge(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged


async def _try_case(catalog: Catalog, result: PolicyCaseResult) -> PolicyCaseResult:
    case = result.case
    ctx = case.context_in(catalog.zone)
    verdict = await verdict_of(catalog, find_tool(catalog, case.tool), case.args, ctx, result.verdict)
    return replace(result, verdict=verdict)


def _failure(result: PolicyCaseResult) -> Text:
    case, verdict = result.case, result.verdict
    return Text(
        f"failed: {case.name}: expected {_describe_verdict(case.expect, case.terms.get('quorum'))}, got "
        f"{_describe_verdict(verdict.verdict, verdict.terms.quorum)}: {verdict.why}",
        "red",
    )


def _describe_verdict(verdict: str, people: int | None) -> str:
    return f"{verdict} by {people} people" if verdict == "ask" and people not in (None, 1) else verdict


def _case_json(result: PolicyCaseResult) -> dict[str, Any]:
    case = result.case
    return {
        "name": case.name,
        "tool": case.tool,
        "expect": case.expect,
        "passed": result.passed,
        "verdict": explain_json(result.verdict),
    }
