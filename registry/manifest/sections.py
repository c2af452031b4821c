"""The sections of the manifest: their keys and the types of their values."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from signoff.contracts.activity_messages import TurnLimits
from signoff.formats.record_section import record_section
from signoff.formats.yaml_section import Section
from signoff.registry.actor import Actor


class ManifestSection(Section):
    """The whole file; the values of the inner sections are read one by one."""

    version: Literal[1] = Field(description="Of the manifest's format: `1`.")
    path: list[str] = Field(["."], description="Folders, relative to the file, from which handlers are imported.")
    context: dict[str, dict[str, Any]] = Field(
        {}, description="More fields of `ctx` for rules: JSON Schema by dotted name."
    )
    timezone: str = Field("UTC", description="By whose clocks rules are told the time, as `ctx.now`: `Europe/Lisbon`.")
    defaults: dict[str, Any] = Field({}, description="What actors and policies fall back on.")
    people: list[Any] | str = Field([], description="Persons, or the name of a YAML file with a list of them.")
    actors: dict[str, Any] = Field({}, description="Actor by name.")
    tools: dict[str, Any] = Field({}, description="Tool by name.")
    mcp_servers: dict[str, Any] = Field({}, description="MCP servers whose tools Signoff runs, by name.")
    policies: list[Any] = Field([], description="Global rules.")
    part_types: list[str] = Field([], description="Types of parts of answers that your own programs read.")
    requires_peer_consumes: list[str] = Field(
        [], description="Types of parts that other agents get only where they say that they take them."
    )
    destinations: dict[str, Any] = Field({}, description="Where records of tools go, by name.")
    observer: str | None = Field(None, description="`module:function`: is told of records that did not arrive.")
    channels: dict[str, Any] = Field({}, description="How people are reached beside the inbox, by name.")
    routing: dict[str, Any] = Field({}, description="By which channel people are reached first.")
    subscriptions: dict[str, Any] = Field({}, description="Other systems that are sent events, by name.")


class Defaults(Section):
    """Fallbacks of actors and policies."""

    approvers: list[str] = Field(["role:approvers"], description="Who decides where a policy names nobody.")
    model: str = Field("", description="The model of actors that name none.")


LimitsSection: Final = record_section(
    TurnLimits,
    completions=Annotated[int, Field(ge=1)],
    calls=Annotated[int, Field(ge=1)],
    # No span of time, as other numbers with a point are.
    cost=Annotated[float, Field(gt=0)],
)
ActorSection: Final = record_section(Actor)
