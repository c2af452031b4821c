"""Are the fields of a tool that its gates read right? The first thing that is wrong, with its remedy."""

import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, Final, NamedTuple, TypeAlias

from signoff.contracts.ids import ID_PATTERN, is_id
from signoff.contracts.updates import DATA
from signoff.contracts.usage import UsageLimit
from signoff.formats.hours import read_window
from signoff.keys.secret_references import FORMS, is_secret_name
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.capabilities import NO_CAPABILITIES, Capabilities
from signoff.registry.hooks import AVAILABLE, CHECK_PERMISSIONS, PROBE, VALIDATE_INPUT, Hook
from signoff.registry.tool import Tool

_MODES: Final = ("strict", "warn", "off")
_LISTS: Final = ("network", "secrets", "fs_reach")
# Lower case and exact, without `*`: hosts are compared as text, and one that only looks declared must not pass.
_HOST: Final = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,62})\.)*[a-z0-9](?:[a-z0-9-]{0,62})(?::[0-9]{1,5})?\Z")
_FRAMEWORK: Final = "signoff."
_IDENTITY: Final = "user"


class Wrong(NamedTuple):
    """What is wrong: the field, its value, and what to say after the tool's name."""

    field: str
    value: object
    why: str


def wrong_gate_field(tool: Tool) -> Wrong | None:
    """The first wrong field, or None."""
    return next((found for look in _LOOKS for found in look(tool)), None)


def _validation(tool: Tool) -> Iterator[Wrong]:
    mode, asks = tool.validation, tool.requires_approval
    if mode not in _MODES:
        yield Wrong("validation", mode, f"has `validation` `{mode}`; allowed: `strict`, `warn`, `off`")
    elif mode == "off" and not (tool.read_only and asks is False):
        why = "nobody would have looked at what people approve and what has effects"
        yield Wrong(
            "validation", mode, f"has `validation: off`, but is not `read_only` without approval: {why}; use `strict`"
        )
    # With `true` it may stand: a person is asked in any case, and reads of the misfit on the card.
    elif mode == "warn" and isinstance(asks, ApprovalPolicy):
        why = "has `validation: warn` and a policy, whose rules read arguments as the schema says; use `strict`"
        yield Wrong("validation", mode, why)


def _functions(tool: Tool) -> Iterator[Wrong]:
    given: tuple[tuple[Hook[Any], object], ...] = (
        (AVAILABLE, tool.available),
        (CHECK_PERMISSIONS, tool.check_permissions),
        (PROBE, tool.probe),
        (VALIDATE_INPUT, tool.validate_input),
    )
    for hook, function in given:
        objection = "" if function is None else hook.objection(function)
        if objection:
            yield Wrong(hook.field, function, objection)


def _capabilities(tool: Tool) -> Iterator[Wrong]:
    declared = tool.capabilities
    # Most tools declare none, and this is asked of each tool of a catalog that may have ten thousand.
    if declared is NO_CAPABILITIES:
        return
    if not isinstance(declared, Capabilities):
        yield Wrong("capabilities", declared, "needs its `capabilities` to be a `Capabilities`")
        return
    for each in fields(declared):
        name, value = f"capabilities.{each.name}", vars(declared)[each.name]
        if each.name not in _LISTS:
            if not isinstance(value, bool):
                yield Wrong(name, value, f"needs `{name}` to be true or false")
        elif not isinstance(value, tuple) or not all(isinstance(item, str) and item for item in value):
            yield Wrong(name, value, f"needs `{name}` to be a list of names")
    yield from _named(declared)


def _named(declared: Capabilities) -> Iterator[Wrong]:
    for host in declared.network:
        if _HOST.match(host) is None:
            why = "a host in lower case, such as `api.example.com` or `localhost:8080`: no scheme, path or `*`"
            yield Wrong("capabilities.network", host, f"may reach `{host}`, which is not {why}")
    for secret in declared.secrets:
        if not is_secret_name(secret):
            why = f"which is no variable's name, nor {FORMS}"
            yield Wrong("capabilities.secrets", secret, f"needs the secret `{secret}`, {why}")


def _always_include(tool: Tool) -> Iterator[Wrong]:
    if not isinstance(tool.always_include, bool):
        yield Wrong("always_include", tool.always_include, "needs `always_include` to be true or false")
    # It passes every actor's list, which is the boundary of what that actor can do (B45): no author may set it.
    elif tool.always_include and not tool.handler.__module__.startswith(_FRAMEWORK):
        why = "sets `always_include`, which is for the framework's own tools; name it in the `tools` of each actor"
        yield Wrong("always_include", True, why)


def _tenants(tool: Tool) -> Iterator[Wrong]:
    given: Any = tool.tenants
    if given is None:
        return
    if not isinstance(given, tuple):
        # A text is a sequence of letters too, each of which could be somebody's tenant.
        yield Wrong("tenants", given, "needs its `tenants` to be a list of names, `[]` for nobody, or left out for all")
        return
    wrong = next((each for each in given if not isinstance(each, str) or not is_id(each)), None)
    if wrong is not None:
        yield Wrong(
            "tenants", wrong, f"is for `{wrong}`, which is no tenant's name: it must match `{ID_PATTERN[:-2]}$`"
        )


def _updates(tool: Tool) -> Iterator[Wrong]:
    given: Any = tool.updates
    if not isinstance(given, tuple) or not all(isinstance(each, str) and each for each in given):
        yield Wrong("updates", given, "needs its `updates` to be a list of names")
        return
    for name in given:
        if name == DATA:
            yield Wrong("updates", name, f"updates all of `{DATA}`; name the fields that it changes")
        elif name.split(".")[0] == _IDENTITY:
            # Who somebody is comes from those who vouch for them, and from no tool (P18).
            yield Wrong("updates", name, f"updates `{name}`; no tool may change who the user is")


def _hours(tool: Tool) -> Iterator[Wrong]:
    given: Any = tool.hours
    if not isinstance(given, tuple) or not all(isinstance(each, str) for each in given):
        yield Wrong("hours", given, "needs its `hours` to be a list of texts such as `Mo-Fr 08:00-18:00 Europe/Lisbon`")
        return
    for each in given:
        try:
            read_window(each)
        except ValueError as error:
            yield Wrong("hours", each, f"has `hours` that cannot be read: {error}")


def _usage_limit(tool: Tool) -> Iterator[Wrong]:
    limit: Any = tool.usage_limit
    if limit is None:
        return
    if not isinstance(limit, UsageLimit):
        yield Wrong("usage_limit", limit, "needs its `usage_limit` to be a `UsageLimit`")
    elif limit.problem:
        yield Wrong("usage_limit", limit, f"has a `usage_limit` that cannot be kept: {limit.problem}")


_Look: TypeAlias = Callable[[Tool], Iterator[Wrong]]
_LOOKS: Final[tuple[_Look, ...]] = (
    _validation,
    _functions,
    _capabilities,
    _always_include,
    _tenants,
    _updates,
    _hours,
    _usage_limit,
)
