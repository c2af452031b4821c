"""Is a tool's declaration right? The checks of B17 in their order; the first failure wins."""

import logging
import math
import re
import string
from collections.abc import Callable, Collection, Mapping
from typing import Final

from signoff.contracts.canonical_json import NotCanonical, canonical_json
from signoff.contracts.errors import RegistrationError
from signoff.contracts.ids import TOOL_NAME_PATTERN, is_tool_name
from signoff.contracts.names import RESPOND
from signoff.formats.nearest_name import did_you_mean
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.conduct import wrong_conduct
from signoff.registry.gate_fields import wrong_gate_field
from signoff.registry.hooks import HANDLER
from signoff.registry.results.destinations import wrong_filter
from signoff.registry.tool import Tool

logger = logging.getLogger("signoff.registry")

_PLACEHOLDER: Final = re.compile(
    r"todo|tbd|fix[ _-]?me|wip|placeholder|pending|none|null|undefined|n/a|na|\.{2,}|x{3,}"
    r"|reason here|will[ -]add[ -]later|.{0,2}",
    re.IGNORECASE | re.DOTALL,
)
_SCOPES: Final = ("generalist", "specialist")
_ROUTINGS: Final = ("routed", "bypass")
_FLAGS: Final = ("read_only", "idempotent", "peer_exposed", "untrusted_output", "return_direct")


def is_placeholder(text: str) -> bool:
    """Whether a reason is no reason (B19): the whole trimmed text is a filler word or up to two characters."""
    return _PLACEHOLDER.fullmatch(text.strip()) is not None


def check_declaration(tool: Tool, taken: Collection[str] = ()) -> None:
    """Raise `RegistrationError` (`tool_name`, `field`, `value`) unless `tool` may be registered beside `taken`."""
    _check_name(tool, taken)
    for check in _CHECKS:
        check(tool)
    if tool.peer_exposed:
        logger.warning("tool `%s` is peer exposed, but nothing publishes tools to peers yet", tool.name)


def _refuse(tool: Tool, field: str, value: object, why: str) -> RegistrationError:
    site = f" (declared at {tool.site})" if tool.site else ""
    return RegistrationError(
        f"tool `{tool.name}` {why}{site}", tool_name=tool.name, field=field, value=value, site=site
    )


def _check_name(tool: Tool, taken: Collection[str]) -> None:
    # In any case: names that differ by case only are one name to whoever reads them (X04). It may still be of any type,
    # as B17 wants this looked at before its shape.
    if str(tool.name).casefold() == RESPOND:
        raise _refuse(tool, "name", tool.name, "has a reserved name: `respond` is given to every actor by itself")
    if tool.name in taken:
        raise _refuse(tool, "name", tool.name, "is already registered; give one of the two another name")
    if not isinstance(tool.name, str) or not is_tool_name(tool.name):
        raise _refuse(tool, "name", tool.name, f"needs a name that matches `{TOOL_NAME_PATTERN[:-2]}$`")


def _check_scope(tool: Tool) -> None:
    if tool.scope not in _SCOPES:
        near = did_you_mean(str(tool.scope), _SCOPES)
        raise _refuse(tool, "scope", tool.scope, f"has scope `{tool.scope}`; allowed: `generalist`, `specialist`{near}")
    if tool.routing not in _ROUTINGS:
        raise _refuse(tool, "routing", tool.routing, f"has routing `{tool.routing}`; allowed: `routed`, `bypass`")
    if tool.scope == "generalist" and tool.routing == "bypass":
        raise _refuse(
            tool,
            "routing",
            tool.routing,
            "is a generalist and may not bypass routing; use `routed` or make it a specialist",
        )


def _check_justification(tool: Tool) -> None:
    if tool.scope == "specialist" and is_placeholder(tool.justification):
        raise _refuse(
            tool,
            "justification",
            tool.justification,
            "is a specialist and needs a real `justification`: why one actor alone",
        )


def _check_bypass(tool: Tool) -> None:
    reason = tool.bypass_routing.reason if tool.bypass_routing is not None else ""
    if tool.routing == "bypass" and is_placeholder(reason):
        raise _refuse(tool, "bypass_routing", reason, "bypasses routing and needs a real `bypass_routing` reason")
    if tool.routing == "routed" and tool.bypass_routing is not None:
        raise _refuse(
            tool, "bypass_routing", reason, "gives a `bypass_routing` reason but is `routed`; drop one of them"
        )


def _check_peer_exposed(tool: Tool) -> None:
    if tool.peer_exposed and tool.scope != "generalist":
        raise _refuse(tool, "peer_exposed", True, "is a specialist and may not be peer exposed; only generalists may")


def _check_words(tool: Tool) -> None:
    if not tool.description.strip():
        raise _refuse(tool, "description", tool.description, "needs a `description`: it is what the model reads")
    if not tool.version.strip():
        raise _refuse(tool, "version", tool.version, "needs a `version`, such as `1`")
    if not all(isinstance(tag, str) and tag for tag in tool.tags):
        raise _refuse(tool, "tags", tool.tags, "has a tag that is not a word")


def _check_handler(tool: Tool) -> None:
    objection = HANDLER.objection(tool.handler)
    if objection:
        more = "; or declare it with `@tool`" if callable(tool.handler) else ""
        raise _refuse(tool, "handler", tool.handler, objection + more)


def _check_probe(tool: Tool) -> None:
    if tool.probe is not None and tool.read_only:
        raise _refuse(tool, "probe", tool.probe, "has a `probe` but is `read_only`: it is never in doubt; drop one")


def _check_schemas(tool: Tool) -> None:
    schema = tool.schema
    output = None if tool.output is None else tool.output.schema
    try:
        # What approvals are bound to is a hash of it. The registry's own hash would fail as well, but name no tool.
        canonical_json([schema.schema, output])
    except NotCanonical as error:
        raise _refuse(
            tool, "input_schema", None, f"has a schema that cannot be written as canonical JSON: {error}"
        ) from None


def _check_arguments_named(tool: Tool) -> None:
    properties = tool.schema.schema.get("properties", {})
    # A misspelt secret would mask nothing, and nobody would see that before the value stood on a card.
    _check_known(tool, "secrets", tool.secrets, properties)
    policy = tool.requires_approval
    if isinstance(policy, ApprovalPolicy):
        _check_known(tool, "requires_approval.show", (*policy.show.secret, *(policy.show.only or ())), properties)
    names = _effect_names(tool)
    _check_known(tool, "effect", names, properties)
    for name in names:
        # The card would say `hidden` in the middle of its sentence, the one line of it that everybody reads.
        if name in tool.masked_arguments:
            raise _refuse(tool, "effect", name, f"names the secret argument `{name}` in its `effect`; leave it out")


def _check_known(tool: Tool, field: str, names: Collection[str], properties: Mapping[str, object]) -> None:
    for name in names:
        if name not in properties:
            near = (
                did_you_mean(name, properties) or f"; it has {', '.join(f'`{each}`' for each in properties) or 'none'}"
            )
            raise _refuse(tool, field, name, f"has no argument `{name}` as `{field}` says{near}")


def _effect_names(tool: Tool) -> list[str]:
    try:
        # Only the parser of Python's format strings: cards fill the places themselves, without attributes and widths.
        parts = list(string.Formatter().parse(tool.effect))
    except ValueError as error:
        raise _refuse(tool, "effect", tool.effect, f"has an `effect` that cannot be read: {error}") from None
    for _, name, form, conversion in parts:
        if name is not None and (not name or form or conversion):
            raise _refuse(tool, "effect", tool.effect, "may use plain `{argument}` places only in its `effect`")
    return [name for _, name, _, _ in parts if name is not None]


def _check_approval(tool: Tool) -> None:
    if not isinstance(tool.requires_approval, bool | ApprovalPolicy):
        raise _refuse(
            tool, "requires_approval", tool.requires_approval, "needs `requires_approval` to be false, true or a policy"
        )


def _check_numbers(tool: Tool) -> None:
    # NaN fails the comparison too. Temporal needs an end to every activity, so that there is no `never`.
    if isinstance(tool.timeout, bool) or not (0 < tool.timeout < math.inf):
        raise _refuse(tool, "timeout", tool.timeout, "needs a `timeout` above 0 seconds")
    limit = tool.max_result_chars
    if limit is not None and (isinstance(limit, bool) or limit < 1):
        raise _refuse(tool, "max_result_chars", limit, "needs `max_result_chars` above 0, or none")
    given = (tool.read_only, tool.idempotent, tool.peer_exposed, tool.untrusted_output, tool.return_direct)
    flags: dict[str, object] = dict(zip(_FLAGS, given, strict=True))
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise _refuse(tool, name, value, f"needs `{name}` to be true or false")


def _check_return_direct(tool: Tool) -> None:
    if tool.return_direct and tool.untrusted_output:
        why = "text from outside would stand as the actor's own words"
        raise _refuse(
            tool, "return_direct", True, f"has `return_direct` and `untrusted_output`: {why}; drop one of them"
        )


def _check_place(tool: Tool) -> None:
    if tool.place:
        why = "has a `place`; leave it out and declare the tool where it belongs, in an actor, route or step"
        raise _refuse(tool, "place", tool.place, why)


def _check_gate_fields(tool: Tool) -> None:
    wrong = wrong_gate_field(tool) or wrong_conduct(tool) or wrong_filter(tool)
    if wrong is not None:
        raise _refuse(tool, wrong.field, wrong.value, wrong.why)


# In the order of B17, and each may rely on those before it: schemas are sound before arguments are looked up in
# them, and `requires_approval` is a policy before what it shows is.
_CHECKS: Final[tuple[Callable[[Tool], None], ...]] = (
    _check_place,
    _check_scope,
    _check_justification,
    _check_bypass,
    _check_peer_exposed,
    _check_words,
    _check_handler,
    _check_probe,
    _check_approval,
    _check_schemas,
    _check_arguments_named,
    _check_numbers,
    _check_return_direct,
    _check_gate_fields,
)
