"""Checks a tool's declaration beyond the types of its fields: the rules of B17 in order, then all others.

The first failure wins.
"""

import dataclasses
import logging
import re
import string
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from signoff.approvals.notifications import NOTICE_EVENTS, REQUESTER
from signoff.contracts.canonical_json import NotCanonical, canonical_json
from signoff.contracts.errors import RegistrationError
from signoff.contracts.ids import ID_PATTERN, TOOL_NAME_PATTERN, is_id, is_tool_name
from signoff.contracts.limits import FIRST_ARGUMENTS, MAX_FALLBACKS
from signoff.contracts.names import COLLECT, RESPOND
from signoff.contracts.updates import DATA
from signoff.formats.bounds import bounds_problem
from signoff.formats.declared_fields import declared_fields
from signoff.formats.hours import parse_opening_hours
from signoff.formats.json_schema import compile_schema
from signoff.formats.nearest_name import did_you_mean
from signoff.keys.secret_references import FORMS, is_secret_name, literal_secrets
from signoff.languages.remarks import english
from signoff.policy.approval_policy import ROLE_OR_USER, ApprovalPolicy
from signoff.registry.capabilities import NO_CAPABILITIES, WRITABLE, Capabilities
from signoff.registry.handler_adapters import run_elsewhere
from signoff.registry.results.destinations import filter_problems
from signoff.registry.tool import Tool, refuse_tool
from signoff.registry.tool_fields import FieldProblem

logger = logging.getLogger("signoff.registry")

_PLACEHOLDER: Final = re.compile(
    r"todo|tbd|fix[ _-]?me|wip|placeholder|pending|none|null|undefined|n/a|na|\.{2,}|x{3,}"
    r"|reason here|will[ -]add[ -]later|.{0,2}",
    re.IGNORECASE | re.DOTALL,
)
_SCOPES: Final = ("generalist", "specialist")
_ROUTINGS: Final = ("routed", "bypass")
_LISTS: Final = ("network", "secrets", "process", "fs_reach", "environment")
_SHELLS: Final = frozenset(
    (
        "sh",
        "ash",
        "bash",
        "dash",
        "zsh",
        "ksh",
        "fish",
        "csh",
        "tcsh",
        "busybox",
        "env",
        "cmd.exe",
        "powershell",
        "pwsh",
    )
)
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Lower case and exact, without `*`: hosts are compared as text, and a lookalike of a declared host must not pass.
_HOST: Final = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,62})\.)*[a-z0-9](?:[a-z0-9-]{0,62})(?::[0-9]{1,5})?\Z")
_IDENTITY: Final = "user"
_ONLY_HERE: Final = (
    "output_schema", "task_queue", "attempts", "updates", "fallbacks", "settings_schema", "capabilities",
    "untrusted_output", "return_direct", "filters", "probe",
)  # fmt: skip
"""Fields for a worker: nothing would apply them if the agent runs the tool."""
_REPEATABLE: Final = "is neither `read_only` nor `idempotent`"

_Check: TypeAlias = Callable[[Tool], Iterator[FieldProblem]]


def is_placeholder(text: str) -> bool:
    """A filler word, or a trimmed text of up to two characters."""
    return _PLACEHOLDER.fullmatch(text.strip()) is not None


def check_declaration(tool: Tool, taken: Mapping[str, Tool] = MappingProxyType({})) -> None:
    """Raise `RegistrationError` (`tool_name`, `field`, `value`) unless `tool` may be registered next to `taken`."""
    flaw = next(_name(tool, taken), None) or next((flaw for check in _CHECKS for flaw in check(tool)), None)
    if flaw is not None:
        raise refuse_tool(tool.name, flaw, tool.site)


def check_fallbacks(tools: Mapping[str, Tool]) -> None:
    """Raise `RegistrationError` for a fallback that is not in `tools`."""
    for tool in tools.values():
        for name in tool.fallbacks:
            if name not in tools:
                near = did_you_mean(name, tools)
                raise RegistrationError(
                    f"tool `{tool.name}` has the unknown fallback `{name}`{near}",
                    tool_name=tool.name,
                    field="fallbacks",
                    value=name,
                )


def _name(tool: Tool, taken: Mapping[str, Tool]) -> Iterator[FieldProblem]:
    # Case-insensitive: readers confuse names that differ by case only. The name may still have any type, because
    # B17 wants this checked before its shape.
    if str(tool.name).casefold() == RESPOND:
        yield FieldProblem("name", tool.name, "has a reserved name: every actor has `respond` already")
    if str(tool.name).casefold() == COLLECT:
        yield FieldProblem("name", tool.name, "has a reserved name: a step that collects data brings `collect` itself")
    if tool.name in taken:
        twin = taken[tool.name].site
        where = f" at {twin}" if twin else ""
        why = f"is already registered{where}; give one of the two another name"
        yield FieldProblem("name", tool.name, why, first_site=twin)
    if not isinstance(tool.name, str) or not is_tool_name(tool.name):
        yield FieldProblem("name", tool.name, f"needs a name that matches `{TOOL_NAME_PATTERN[:-2]}$`")


def _place(tool: Tool) -> Iterator[FieldProblem]:
    if tool.place:
        why = "has a `place`; leave it out and declare the tool where it belongs, in an actor, route or step"
        yield FieldProblem("place", tool.place, why)


def _scope(tool: Tool) -> Iterator[FieldProblem]:
    if tool.scope not in _SCOPES:
        problem = f"has scope `{tool.scope}`" if tool.scope else "has no `scope`"
        near = did_you_mean(str(tool.scope), _SCOPES)
        yield FieldProblem("scope", tool.scope, f"{problem}; allowed: `generalist`, `specialist`{near}")
    if tool.routing not in _ROUTINGS:
        yield FieldProblem("routing", tool.routing, f"has routing `{tool.routing}`; allowed: `routed`, `bypass`")
    if tool.scope == "generalist" and tool.routing == "bypass":
        why = "is a generalist and may not bypass routing; use `routed` or make it a specialist"
        yield FieldProblem("routing", tool.routing, why)


def _justification(tool: Tool) -> Iterator[FieldProblem]:
    if tool.scope == "specialist" and is_placeholder(tool.justification):
        why = "is a specialist and needs a real `justification`: why one actor alone"
        yield FieldProblem("justification", tool.justification, why)


def _bypass(tool: Tool) -> Iterator[FieldProblem]:
    reason = tool.bypass_routing.reason if tool.bypass_routing is not None else ""
    if tool.routing == "bypass" and is_placeholder(reason):
        yield FieldProblem("bypass_routing", reason, "bypasses routing and needs a real `bypass_routing` reason")
    if tool.routing == "routed" and tool.bypass_routing is not None:
        why = "gives a `bypass_routing` reason but is `routed`; drop one of them"
        yield FieldProblem("bypass_routing", reason, why)


def _peer_exposed(tool: Tool) -> Iterator[FieldProblem]:
    if tool.peer_exposed and tool.scope != "generalist":
        yield FieldProblem("peer_exposed", True, "is a specialist and may not be peer exposed; only generalists may")


def _words(tool: Tool) -> Iterator[FieldProblem]:
    if not tool.description.strip():
        why = "needs a `description` or a handler with a docstring: the model reads it"
        yield FieldProblem("description", tool.description, why)
    if not tool.version.strip():
        yield FieldProblem("version", tool.version, "needs a `version`, such as `1`")
    if not all(tool.tags):
        yield FieldProblem("tags", tool.tags, "has a tag that is not a word")


def _probe(tool: Tool) -> Iterator[FieldProblem]:
    if tool.probe is not None and tool.read_only:
        yield FieldProblem("probe", tool.probe, "has a `probe` but is `read_only`: it is never in doubt; drop one")


def _schemas(tool: Tool) -> Iterator[FieldProblem]:
    schema = tool.schema
    output = None if tool.output is None else tool.output.schema
    answer = None if tool.answer is None else tool.answer.schema
    try:
        # Approvals are bound to a hash of it. The registry's own hash would fail too, but without the tool's name.
        canonical_json([schema.schema, output, answer])
    except NotCanonical as error:
        yield FieldProblem("input_schema", None, f"has a schema that cannot be written as canonical JSON: {error}")


def _arguments_named(tool: Tool) -> Iterator[FieldProblem]:
    properties = tool.schema.schema.get("properties", {})
    # A misspelled secret would mask nothing, unnoticed until a card shows the value.
    yield from _unknown("secrets", tool.secrets, properties)
    # A misspelled remark would still be compared. If all arguments were remarks, every call would be equal.
    yield from _unknown("remarks", tool.remarks, properties)
    if tool.remarks and not set(properties) - set(tool.remarks):
        yield FieldProblem(
            "remarks", tool.remarks, "has only `remarks`; remove the arguments that affect the call from it"
        )
    yield from _unknown("card.first", tool.card.first, properties)
    if len(tool.card.first) > FIRST_ARGUMENTS:
        why = f"has {len(tool.card.first)} arguments in `card.first`; at most {FIRST_ARGUMENTS} come first"
        yield FieldProblem("card.first", tool.card.first, why)
    yield from _unknown("card.recipients", tool.card.recipients, properties)
    for name in tool.card.recipients:
        if name in tool.masked_arguments:
            yield FieldProblem("card.recipients", name, f"names the secret argument `{name}`, which is never compared")
    policy = tool.requires_approval
    if isinstance(policy, ApprovalPolicy):
        shown = (*policy.show.secret, *(policy.show.only or ()))
        yield from _unknown("requires_approval.show", shown, properties)
    try:
        # Only the parser of Python's format strings: cards fill the places themselves, without attributes and widths.
        parts = [(name, form, how) for _, name, form, how in string.Formatter().parse(tool.effect) if name is not None]
    except ValueError as error:
        yield FieldProblem("effect", tool.effect, f"has an `effect` that cannot be read: {error}")
        return
    if any(not name or form or how for name, form, how in parts):
        yield FieldProblem("effect", tool.effect, "may use plain `{argument}` places only in its `effect`")
    names = [name for name, _, _ in parts]
    yield from _unknown("effect", names, properties)
    for name in names:
        # The card would show `hidden` in the middle of its most important sentence.
        if name in tool.masked_arguments:
            yield FieldProblem("effect", name, f"names the secret argument `{name}` in its `effect`; leave it out")


def _unknown(field: str, names: Collection[str], properties: Mapping[str, object]) -> Iterator[FieldProblem]:
    for name in names:
        if name not in properties:
            known = f"; it has {', '.join(f'`{each}`' for each in properties) or 'none'}"
            near = did_you_mean(name, properties) or known
            yield FieldProblem(field, name, f"has no argument `{name}` as `{field}` says{near}")


def _return_direct(tool: Tool) -> Iterator[FieldProblem]:
    if tool.return_direct and tool.untrusted_output:
        why = "text from outside would stand as the actor's own words"
        yield FieldProblem(
            "return_direct", True, f"has `return_direct` and `untrusted_output`: {why}; drop one of them"
        )


def _validation(tool: Tool) -> Iterator[FieldProblem]:
    mode, asks = tool.validation, tool.requires_approval
    if mode == "off" and not (tool.read_only and asks is False):
        why = "arguments of calls with effects would be unchecked"
        yield FieldProblem(
            "validation", mode, f"has `validation: off`, but is not `read_only` without approval: {why}; use `strict`"
        )
    # Allowed with `true`: an approver is asked in any case and sees the misfit on the card.
    elif mode == "warn" and isinstance(asks, ApprovalPolicy):
        why = "has `validation: warn` and a policy, whose rules read arguments as the schema says; use `strict`"
        yield FieldProblem("validation", mode, why)


def _capabilities(tool: Tool) -> Iterator[FieldProblem]:
    declared = tool.capabilities
    # Most tools declare none, and a catalog may have ten thousand tools.
    if declared is NO_CAPABILITIES:
        return
    for each in dataclasses.fields(declared):
        name, value = f"capabilities.{each.name}", vars(declared)[each.name]
        if each.name not in _LISTS:
            if not isinstance(value, bool):
                yield FieldProblem(name, value, f"needs `{name}` to be true or false")
        elif not isinstance(value, tuple) or not all(isinstance(item, str) and item for item in value):
            yield FieldProblem(name, value, f"needs `{name}` to be a list of names")
    yield from _reach(declared)


def _reach(declared: Capabilities) -> Iterator[FieldProblem]:
    for host in declared.network:
        if _HOST.match(host) is None:
            why = "a host in lower case, such as `api.example.com` or `localhost:8080`: no scheme, path or `*`"
            yield FieldProblem("capabilities.network", host, f"may reach `{host}`, which is not {why}")
    for secret in declared.secrets:
        if not is_secret_name(secret):
            why = f"which is neither a variable's name nor {FORMS}"
            yield FieldProblem("capabilities.secrets", secret, f"needs the secret `{secret}`, {why}")
    yield from _reach_here(declared)


def _reach_here(declared: Capabilities) -> Iterator[FieldProblem]:
    for program in declared.process:
        if program.rpartition("/")[2].lower() in _SHELLS:
            why = f"may run `{program}`, a shell, which runs any command; declare the programs that the tool needs"
            yield FieldProblem("capabilities.process", program, why)
        # A path like `bin/tool` would depend on the worker's start directory.
        elif "\0" in program or ("/" in program and not program.startswith("/")):
            why = f"may run `{program}`, which is neither a plain name nor an absolute path"
            yield FieldProblem("capabilities.process", program, why)
    for folder in declared.fs_reach:
        path = folder.removesuffix(WRITABLE)
        if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
            why = f"may reach `{folder}`, which is no absolute path of a folder, such as `/srv/reports`"
            yield FieldProblem("capabilities.fs_reach", folder, why)
        elif not path.strip("/"):
            yield FieldProblem("capabilities.fs_reach", folder, "may reach all files there are; name the folders")
    for name in declared.environment:
        if _VARIABLE.match(name) is None:
            why = f"shows its programs `{name}`, which is no variable's name"
            yield FieldProblem("capabilities.environment", name, why)
    if declared.environment and not declared.process:
        why = "declares an `environment`, but no `process` that would see it"
        yield FieldProblem("capabilities.environment", declared.environment, why)


def _metadata(tool: Tool) -> Iterator[FieldProblem]:
    try:
        canonical_json(tool.metadata)
    except NotCanonical as error:
        yield FieldProblem("metadata", None, f"has `metadata` that is no JSON: {error}")
        return
    problem = bounds_problem(tool.metadata)
    if problem:
        yield FieldProblem("metadata", None, f"has `metadata` that rules cannot read: it holds {problem}")


def _settings(tool: Tool) -> Iterator[FieldProblem]:
    for name in literal_secrets(tool.settings):
        why = (
            f"has a secret in `settings.{name}`, which anybody who sees the tool reads; declare `capabilities.secrets`"
        )
        yield FieldProblem(f"settings.{name}", "", why)
    if tool.settings_schema is None:
        if tool.settings:
            why = "has `settings`, but no `settings_schema` for them"
            yield FieldProblem("settings", sorted(tool.settings), why)
        return
    schema = compile_schema(tool.settings_schema, tool_name=tool.name, field="settings_schema")
    try:
        canonical_json([schema.schema, tool.settings])
    except NotCanonical as error:
        yield FieldProblem("settings", None, f"has settings that cannot be written as canonical JSON: {error}")
        return
    # Without the value: it may be unsuitable for a log.
    for path, message in schema.check(tool.settings):
        place = f"settings.{path}" if path else "settings"
        yield FieldProblem(place, None, f"has `{place}` that does not fit its `settings_schema`: {english(message)}")


def _tenants(tool: Tool) -> Iterator[FieldProblem]:
    for each in tool.tenants or ():
        if not is_id(each):
            why = f"is for `{each}`, which is no tenant's name: it must match `{ID_PATTERN[:-2]}$`"
            yield FieldProblem("tenants", each, why)


def _updates(tool: Tool) -> Iterator[FieldProblem]:
    for name in tool.updates:
        if not name:
            yield FieldProblem("updates", tool.updates, "needs `updates` to be a list of names")
        elif name == DATA:
            yield FieldProblem("updates", name, f"updates all of `{DATA}`; name the fields that it changes")
        elif name.split(".")[0] == _IDENTITY:
            # Identity comes from the gateway, never from a tool.
            yield FieldProblem("updates", name, f"updates `{name}`; no tool may change who the user is")


def _hours(tool: Tool) -> Iterator[FieldProblem]:
    for each in tool.hours:
        try:
            parse_opening_hours(each)
        except ValueError as error:
            yield FieldProblem("hours", each, f"has `hours` that cannot be read: {error}")


def _usage_limit(tool: Tool) -> Iterator[FieldProblem]:
    limit = tool.usage_limit
    if limit is not None and limit.problem:
        yield FieldProblem("usage_limit", limit, f"has a `usage_limit` that cannot be kept: {limit.problem}")


def _cache_permission(tool: Tool) -> Iterator[FieldProblem]:
    if tool.cache_permission is not None and tool.check_permissions is None:
        why = "has `cache_permission`, but no `check_permissions` whose answers could be kept"
        yield FieldProblem("cache_permission", tool.cache_permission, why)


def _binds(tool: Tool) -> Iterator[FieldProblem]:
    if tool.binds and tool.preview is None:
        yield FieldProblem("binds", tool.binds, "has `binds`, but no `preview` with such parts")


def _repeats(tool: Tool) -> Iterator[FieldProblem]:
    attempts, fallbacks = tool.attempts, tool.fallbacks
    repeatable = tool.read_only or tool.idempotent
    if attempts is not None and attempts > 1 and not repeatable:
        why = f"has `attempts` {attempts}, but {_REPEATABLE}: a second try could do it twice; declare one, or 1 attempt"
        yield FieldProblem("attempts", attempts, why)
    if fallbacks and not repeatable:
        why = f"has `fallbacks`, but {_REPEATABLE}: it may have happened although it failed; drop them"
        yield FieldProblem("fallbacks", fallbacks, why)
    if len(fallbacks) > MAX_FALLBACKS:
        yield FieldProblem("fallbacks", fallbacks, f"has more than {MAX_FALLBACKS} `fallbacks`")
    if tool.name in fallbacks:
        yield FieldProblem("fallbacks", tool.name, "is its own fallback; use `attempts` to retry it")
    if len(set(fallbacks)) < len(fallbacks):
        yield FieldProblem("fallbacks", fallbacks, "lists a fallback twice; keep one")


def _runs(tool: Tool) -> Iterator[FieldProblem]:
    if not tool.is_external:
        if tool.handler is run_elsewhere:
            why = "has no own handler; write `runs: external`, or name a `handler`"
            yield FieldProblem("handler", "", why)
        if tool.unreported != "record":
            why = "has `unreported`, but is run by a worker, which always reports; drop it"
            yield FieldProblem("unreported", tool.unreported, why)
        return
    if tool.handler is not run_elsewhere:
        yield FieldProblem("handler", "", "has `runs: external` and a `handler`, which would never run; drop one")
    values, fields = vars(tool), declared_fields(Tool)
    for name in _ONLY_HERE:
        if values[name] != fields[name].default:
            why = f"has `runs: external` and `{name}`, which only a worker could keep to; drop `{name}`"
            yield FieldProblem(name, "", why)


# In the order of B17; each may rely on those before it: schemas are valid before arguments are looked up in them.
def _tell(tool: Tool) -> Iterator[FieldProblem]:
    for who, events in tool.tell.items():
        if who != REQUESTER and ROLE_OR_USER.match(who) is None:
            why = f"has `tell` for `{who}`, which is neither `requester`, `role:<role>` nor `user:<id>`"
            yield FieldProblem("tell", who, why)
        for event in events:
            if event not in NOTICE_EVENTS:
                near = did_you_mean(event, NOTICE_EVENTS)
                yield FieldProblem("tell", event, f"tells `{who}` the unknown event `{event}`{near}")


_CHECKS: Final[tuple[_Check, ...]] = (
    _place,
    _scope,
    _justification,
    _bypass,
    _peer_exposed,
    _words,
    _probe,
    _schemas,
    _arguments_named,
    _return_direct,
    _validation,
    _capabilities,
    _settings,
    _metadata,
    _tenants,
    _updates,
    _hours,
    _usage_limit,
    _cache_permission,
    _binds,
    _tell,
    _repeats,
    filter_problems,
    _runs,
)
