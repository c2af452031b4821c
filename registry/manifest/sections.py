"""The sections of the manifest: their keys and the types of their values."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from signoff.contracts.activity_messages import TurnLimits
from signoff.formats.record_section import record_section
from signoff.formats.yaml_section import Section
from signoff.registry.actor import Actor


class ManifestSection(Section):
    """The whole file. The inner sections are read one by one."""

    version: Literal[1] = Field(description="The version of the manifest's format: `1`.")
    path: list[str] = Field(["."], description="Directories of handlers, relative to the file.")
    context: dict[str, dict[str, Any]] = Field(
        {}, description="More fields of `ctx` for rules: JSON Schema by dotted name."
    )
    timezone: str = Field("UTC", description="The time zone of `ctx.now` in rules, such as `Europe/Lisbon`.")
    defaults: dict[str, Any] = Field({}, description="Default values of actors and policies.")
    people: list[Any] | str = Field([], description="Persons, or the name of a YAML file with a list of them.")
    actors: dict[str, Any] = Field({}, description="Actor by name.")
    tools: dict[str, Any] = Field({}, description="Tool by name.")
    mcp_servers: dict[str, Any] = Field({}, description="MCP servers whose tools Signoff runs, by name.")
    policies: list[Any] = Field([], description="Global rules.")
    part_types: list[str] = Field([], description="Types of parts of answers that your own programs read.")
    requires_peer_consumes: list[str] = Field(
        [], description="Types of parts that other agents get only if they declare support."
    )
    destinations: dict[str, Any] = Field({}, description="Where records of tools go, by name.")
    observer: str | None = Field(None, description="`module:function`: receives failed deliveries of records.")
    channels: dict[str, Any] = Field({}, description="Channels to people apart from the inbox, by name.")
    routing: dict[str, Any] = Field({}, description="The order of channels to people.")
    rooms: dict[str, Any] = Field({}, description="Rooms that show waiting requests, a list for each role.")
    oncall: dict[str, Any] = Field({}, description="Rotas of people on call, by name.")
    subscriptions: dict[str, Any] = Field({}, description="Other systems that receive events, by name.")
    insights: dict[str, Any] = Field({}, description="The readers of figures by person.")


class Defaults(Section):
    """Fallbacks of actors and policies."""

    approvers: list[str] = Field(["role:approvers"], description="The approvers if a policy names none.")
    model: str = Field("", description="The model of actors that name none.")


class InsightsSection(Section):
    """The readers of figures about decisions."""

    by_person: bool = Field(
        False, description="Operators and auditors also see figures by person. Everyone sees their own."
    )


LimitsSection: Final = record_section(
    TurnLimits,
    completions=Annotated[int, Field(ge=1)],
    calls=Annotated[int, Field(ge=1)],
    # Not a duration, unlike other numbers with a point.
    cost=Annotated[float, Field(gt=0)],
)
ActorSection: Final = record_section(Actor)
