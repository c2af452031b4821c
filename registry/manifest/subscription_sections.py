"""The section of subscriptions in the manifest: the events for another system, a function or an actor."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from types import MappingProxyType
from typing import Annotated, Final, TypeAlias, TypedDict
from urllib.parse import urlsplit

from pydantic import Field

from signoff.contracts.audit import DISPATCH, EVENT_NAMES, CloudEvent
from signoff.contracts.errors import ConfigError
from signoff.contracts.ids import is_id
from signoff.contracts.names import DEFAULT_TENANT, SUBSCRIPTION
from signoff.formats.declared_fields import IN_CODE, FieldSpec
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.formats.record_section import Reference, record_fields, record_section
from signoff.formats.yaml_file import YamlFile
from signoff.formats.yaml_section import read_section
from signoff.keys.secret_references import FORMS, literal_secrets
from signoff.registry.actor import Actor
from signoff.registry.hooks import Hook
from signoff.registry.import_reference import load_reference
from signoff.registry.manifest.sections import ManifestSection

EventHandler: TypeAlias = Callable[[CloudEvent], Awaitable[None]]
"""A function that receives each event at least once. Repeated events have the same `id`."""
EVENT_HANDLER: Final[Hook[None]] = Hook(field="handler", takes=("event",))
MAX_HANDLER_SECONDS: Final = 600.0
MAX_TURNS_PER_MINUTE: Final = 600
TO_ACTOR: Final = "actor:"
"""The prefix of `to` for events that start a turn of the named actor."""
_WEBHOOK_ALONE: Final = ("url", "secret", "previous_secret", "allow_networks")


@dataclass(frozen=True)
class Subscription:
    """Another system that receives signed events (Standard Webhooks), or a function or an actor."""

    name: Annotated[str, FieldSpec(key=IN_CODE)]
    events: tuple[str, ...]
    """Event types, or prefixes with `*`.

    An unknown event or tool is an error.
    """
    url: str = ""
    """Webhook: the receiver's address, over https, or in one of `allow_networks`."""
    secret: str = ""
    """Webhook: the signing secret, a [reference](manifest.md#secrets) such as `env:NAME`.

    Its value is `whsec_` and the base64 of 24 to 64 bytes.
    """
    previous_secret: str = ""
    """Webhook: the former secret, which also signs during a rotation."""
    tenant: str = DEFAULT_TENANT
    """The tenant of the events."""
    actor: str = ""
    """The actor whose specialists' events are included, from a call's proposal to its execution."""
    allow_networks: tuple[str, ...] = ()
    """Webhook: allowed private networks of the address, such as `10.0.0.0/8`."""
    of_actor_alone: Annotated[bool, FieldSpec(key=IN_CODE)] = False
    """Whether it receives only events about calls of `actor`."""
    handler: Annotated[EventHandler | None, FieldSpec(key=Reference)] = field(default=None, repr=False, compare=False)
    """Handler: `module:function`, an `async def (event)`."""
    timeout: float = 30.0
    """Handler: the time limit for one event, at most 10 minutes."""
    starts: Annotated[str, FieldSpec(key=IN_CODE)] = ""
    """The actor of the turns that its events start."""
    turns_per_minute: int = 10
    """Actor: turns started per minute, at most 600. Further events wait."""

    @property
    def requester(self) -> str:
        """The requester of its turns. No person has such an id."""
        return f"{SUBSCRIPTION}:{self.name}"

    def wants(self, kind: str) -> bool:
        return any(
            kind.startswith(each.removesuffix("*")) if each.endswith("*") else kind == each for each in self.events
        )


_TO: Final = (
    Annotated[str, Field(pattern="^(webhook|handler|actor:.+)$")],
    Field("webhook", description="The receiver: `webhook`, `handler`, or `actor:NAME` to start turns."),
)
SubscriptionSection: Final = record_section(Subscription, to=_TO)


class SubscriptionFields(TypedDict):
    """The fields of a catalog that this module reads."""

    subscriptions: list[Subscription]


def read_subscriptions(file: YamlFile, top: ManifestSection) -> SubscriptionFields:
    """Raises `ConfigError` with file and line."""
    found: list[Subscription] = []
    for name, data in top.subscriptions.items():
        section = read_section(file, ("subscriptions", name), SubscriptionSection, data, f"subscription `{name}`")
        given = record_fields(section)
        to = str(dict(section)["to"])
        given["starts"] = to.removeprefix(TO_ACTOR) if to.startswith(TO_ACTOR) else ""
        if (to == "handler") != (given["handler"] is not None):
            raise _refuse(name, "handler", "needs a `handler` where it says `to: handler`, and there alone")
        if given["handler"] is not None:
            given["handler"] = _handler(file, name, given["handler"])
        found.append(Subscription(name=name, **given))
    return {"subscriptions": found}


def _handler(file: YamlFile, name: str, reference: str) -> EventHandler:
    place = ("subscriptions", name, "handler")
    try:
        found: EventHandler = load_reference(reference)
    except ConfigError as error:
        message = f"`handler` of subscription `{name}`: {error.message}"
        raise file.error(place, message, **error.context) from error
    return found


def build_subscriptions(
    given: Iterable[Subscription], actors: Mapping[str, Actor], tools: Iterable[str]
) -> Mapping[str, Subscription]:
    """Check subscriptions alone, and against the actors and tools that they name. Raises `ConfigError`."""
    known: dict[str, Subscription] = {}
    names = frozenset(tools)
    for each in given:
        if each.name in known:
            raise _refuse(each.name, "", "is declared twice; keep one")
        _check(each, actors)
        for pattern in each.events:
            _check_pattern(each.name, pattern, names)
        known[each.name] = each
    return MappingProxyType(known)


def _check(given: Subscription, actors: Mapping[str, Actor]) -> None:
    if not is_id(given.name):
        raise _refuse(given.name, "", "has no name such as `finance-feed`: letters, digits, `_`, `-`, at most 48")
    if not is_id(given.tenant):
        raise _refuse(given.name, "tenant", "has an invalid name in `tenant`")
    if given.actor and given.actor not in actors:
        raise _refuse(given.name, "actor", f"names the actor {quote_name(given.actor)}, which is not declared")
    if not given.events:
        raise _refuse(given.name, "events", 'needs `events` such as `["approval.*", "tool_call:pay"]`')
    if given.starts:
        _check_actor(given, actors)
        return
    if given.handler is None:
        _check_webhook(given)
        return
    objection = EVENT_HANDLER.objection(given.handler)
    if objection:
        raise _refuse(given.name, "handler", objection)
    for name in _WEBHOOK_ALONE:
        if getattr(given, name):
            raise _refuse(given.name, name, f"has a `handler`, which is given events without a `{name}`; drop one")
    if not 0 < given.timeout <= MAX_HANDLER_SECONDS:
        raise _refuse(given.name, "timeout", f"needs a `timeout` above 0 and at most {MAX_HANDLER_SECONDS:.0f} seconds")


def _check_actor(given: Subscription, actors: Mapping[str, Actor]) -> None:
    actor = actors.get(given.starts)
    if actor is None:
        why = did_you_mean(given.starts, actors) or "; declare it in `actors`"
        raise _refuse(given.name, "to", f"is to the actor {quote_name(given.starts)}, which is not declared{why}")
    if actor.external is not None:
        raise _refuse(
            given.name, "to", f"is to {quote_name(given.starts)}, an external agent: Signoff starts no turn of it"
        )
    for name in ("handler", *_WEBHOOK_ALONE):
        if getattr(given, name):
            raise _refuse(given.name, name, f"has a `{name}`, which an actor does not use; drop it")
    if not 0 < given.turns_per_minute <= MAX_TURNS_PER_MINUTE:
        raise _refuse(given.name, "turns_per_minute", f"needs `turns_per_minute` from 1 to {MAX_TURNS_PER_MINUTE}")


def _check_webhook(given: Subscription) -> None:
    if not _is_web_address(given.url):
        raise _refuse(given.name, "url", "needs a `url` such as https://desk.example.com/events")
    secrets = {"secret": given.secret} | ({"previous_secret": given.previous_secret} if given.previous_secret else {})
    # The declaration is printed and compared, so it must not hold a secret. Anyone could forge unsigned events.
    for name in literal_secrets(secrets):
        raise _refuse(given.name, name, f"has a secret in `{name}`; write {FORMS} there and put it where that leads")
    if not given.secret:
        raise _refuse(given.name, "secret", f"needs a `secret` to sign its events: {FORMS}")
    try:
        for network in given.allow_networks:
            ip_network(network)
    except ValueError:
        raise _refuse(given.name, "allow_networks", "needs networks such as `10.0.0.0/8`") from None


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        # Reads the port for its check: otherwise an invalid one would fail only at the first event.
        _ = parts.port
    except ValueError:
        return False
    plain = url.isascii() and url.isprintable() and " " not in url
    return plain and parts.scheme in ("https", "http") and bool(parts.hostname) and "@" not in parts.netloc


def _check_pattern(name: str, pattern: str, tools: frozenset[str]) -> None:
    # Check at build: a pattern that no event matches would fail silently.
    if pattern.startswith(DISPATCH):
        tool = pattern.removeprefix(DISPATCH)
        if tool in tools or tool == "*":
            return
        why = did_you_mean(tool, tools) or "; write the name of a tool, or `tool_call:*`"
        raise _refuse(name, "events", f"wants {quote_name(pattern)}, but there is no tool {quote_name(tool)}{why}")
    start = pattern.removesuffix("*")
    fits = any(each.startswith(start) for each in EVENT_NAMES) if pattern.endswith("*") else pattern in EVENT_NAMES
    if not fits:
        why = did_you_mean(pattern, EVENT_NAMES) or "; see docs/events.md"
        raise _refuse(name, "events", f"wants {quote_name(pattern)}, which no event is{why}")


def _refuse(name: str, field_name: str, why: str) -> ConfigError:
    where = f"subscriptions.{name}.{field_name}" if field_name else f"subscriptions.{name}"
    return ConfigError(f"subscription {quote_name(name)} {why}", field=where, value=name)
