"""The layers of a call's context, in order: none overrides a layer above it."""

from dataclasses import dataclass

from signoff.contracts.call import CallContext
from signoff.contracts.updates import DATA
from signoff.registry.catalog import Catalog

_HASH_CHARS = 12


@dataclass(frozen=True)
class ContextLayer:
    """One layer of context."""

    number: int
    """The position, from 1 at the top."""
    name: str
    set_by: str
    holds: tuple[str, ...]
    """The contents: names of `ctx` for rules, or a description."""
    fixed: bool
    """Whether it cannot change after it is loaded."""


def context_layers(catalog: Catalog, ctx: CallContext) -> tuple[ContextLayer, ...]:
    """Return the six layers of a call in `ctx`, strongest first."""
    user, declared = ctx.user, catalog.fields.schemas
    identity = (f"user {user.user}", f"person {user.human}", f"tenant {ctx.tenant}", f"actor {ctx.actor}")
    about_user = tuple(name for name in declared if name.startswith("user."))
    updated = sorted({name for tool in catalog.every_tool for name in tool.updates})
    results = tuple(name if name in declared else f"{DATA}.{name}" for name in updated)
    given = ("route", "step", "transient", *(name for name in declared if name not in about_user))
    return (
        ContextLayer(1, "identity", "the gateway, which signs it", identity, True),
        ContextLayer(
            2,
            "hard constraints",
            "the manifest, when it is loaded",
            ("instructions, tools, policies, rules, caps", f"catalog {catalog.hash[:_HASH_CHARS]}"),
            True,
        ),
        ContextLayer(3, "directory", "the directory of people", about_user, False),
        ContextLayer(4, "request", "the starter of the turn, within `may_set`", given, False),
        ContextLayer(5, "results", "tools, within their `updates`", results, False),
        ContextLayer(6, "words", "people's and the model's words, texts of results", ("args", "messages"), False),
    )
