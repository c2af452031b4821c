"""How a tool is run beside and after others: is what its declaration, and its actor's, say of that right?"""

from collections.abc import Iterator, Mapping
from typing import Final

from signoff.contracts.errors import ConfigError, RegistrationError
from signoff.contracts.limits import MAX_ATTEMPTS, MAX_FALLBACKS
from signoff.formats.nearest_name import did_you_mean
from signoff.registry.actor import Actor
from signoff.registry.gate_fields import Wrong
from signoff.registry.tool import Tool

_CONCURRENCIES: Final = ("safe", "exclusive")
_MODES: Final = ("parallel", "sequential")
_ON_FAILURE: Final = ("continue", "abort_siblings")
_REPEATABLE: Final = "is neither `read_only` nor `idempotent`"


def wrong_conduct(tool: Tool) -> Wrong | None:
    """The first wrong field of `tool` by itself, or None."""
    return next(_wrong(tool), None)


def _wrong(tool: Tool) -> Iterator[Wrong]:
    if tool.concurrency not in _CONCURRENCIES:
        allowed = "allowed: `safe`, `exclusive`"
        yield Wrong("concurrency", tool.concurrency, f"has `concurrency` `{tool.concurrency}`; {allowed}")
    repeatable, attempts, fallbacks = tool.read_only or tool.idempotent, tool.attempts, tool.fallbacks
    # `True` is the integer 1 to Python, here and wherever numbers are checked.
    if attempts is not None and (isinstance(attempts, bool) or not 1 <= attempts <= MAX_ATTEMPTS):
        yield Wrong("attempts", attempts, f"needs `attempts` from 1 to {MAX_ATTEMPTS}, or none")
    elif attempts is not None and attempts > 1 and not repeatable:
        why = f"has `attempts` {attempts}, but {_REPEATABLE}: a second try could do it twice; declare one, or 1 attempt"
        yield Wrong("attempts", attempts, why)
    if fallbacks and not repeatable:
        why = f"has `fallbacks`, but {_REPEATABLE}: it may have happened although it failed; drop them"
        yield Wrong("fallbacks", fallbacks, why)
    if len(fallbacks) > MAX_FALLBACKS:
        yield Wrong("fallbacks", fallbacks, f"has more than {MAX_FALLBACKS} `fallbacks`")
    if tool.name in fallbacks:
        yield Wrong("fallbacks", tool.name, "is its own fallback; `attempts` says how often it is tried itself")
    if len(set(fallbacks)) < len(fallbacks):
        yield Wrong("fallbacks", fallbacks, "lists a fallback twice; keep one")


def check_fallbacks(tools: Mapping[str, Tool]) -> None:
    """Raise `RegistrationError` for a fallback that is none of `tools`."""
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


def check_mode(actor: Actor) -> None:
    """Raise `ConfigError` unless `actor` says in known words how its calls are run."""
    for field, value, allowed in (("mode", actor.mode, _MODES), ("on_failure", actor.on_failure, _ON_FAILURE)):
        if value not in allowed:
            words = ", ".join(f"`{each}`" for each in allowed)
            raise ConfigError(
                f"actor `{actor.name}` has `{field}` `{value}`; allowed: {words}",
                actor=actor.name,
                field=field,
                value=value,
            )
