"""Checks declared actors when the catalog is built."""

from collections.abc import Iterable, Mapping
from ipaddress import ip_network
from typing import Final

from signoff.contracts.errors import ConfigError
from signoff.contracts.ids import ID_PATTERN, is_id
from signoff.contracts.limits import RESULT_BYTES
from signoff.contracts.names import COLLECT, READ_REST, RESPOND
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.keys.secret_references import FORMS, literal_secrets
from signoff.policy.approval_policy import ROLE_OR_USER
from signoff.registry.actor import OWN_WORKFLOWS, Actor, Callbacks, ExternalAgent, is_callback_address
from signoff.registry.gates.actor_filters import check_filters
from signoff.registry.registry import ToolRegistry
from signoff.registry.respond_form import respond_form
from signoff.registry.results.domain_data import check_merge, schema_text

_MODES: Final = ("parallel", "sequential")
_ON_FAILURE: Final = ("continue", "abort_siblings")


def check_actors(actors: Iterable[Actor], registry: ToolRegistry) -> dict[str, Actor]:
    """Check each actor alone and against the tools. Raises `ConfigError` with the remedy."""
    known: dict[str, Actor] = {}
    spelled = {name.casefold(): name for name in registry.list()}
    for actor in actors:
        if not is_id(actor.name):
            # The pattern ends in `\Z`, because Python's `$` also matches before a line break. Messages show `$`.
            raise actor_error(actor, "name", actor.name, f"needs a name that matches `{ID_PATTERN[:-2]}$`")
        if actor.name in known:
            raise actor_error(actor, "name", actor.name, "is declared twice; give one of the two another name")
        if actor.external is not None:
            _check_external(actor, actor.external)
        elif not actor.model.strip():
            raise actor_error(actor, "model", actor.model, "has no model; write `model`, such as `openai:gpt-5`")
        _check_tools(actor, registry)
        _check_case(actor, spelled)
        _check_secrets(actor)
        check_filters(actor, registry)
        _check_mode(actor)
        _check_result_chars(actor)
        _check_domain_data(actor)
        known[actor.name] = actor
    return known


def _check_external(actor: Actor, agent: ExternalAgent) -> None:
    for name, value in (("model", actor.model), ("instructions", actor.instructions), ("routes", actor.routes)):
        if value:
            raise actor_error(
                actor, name, value, f"is `external` and has `{name}`, though it thinks elsewhere; drop it"
            )
    if not agent.acts_for:
        why = "is `external` without a requester; write `acts_for`, such as `[role:staff]` or `[user:ana]`"
        raise actor_error(actor, "external.acts_for", "", why)
    if agent.callbacks is not None:
        _check_callbacks(actor, agent.callbacks)
    if agent.undeclared not in ("deny", "ask"):
        why = f"has `undeclared` `{agent.undeclared}`; write `deny` or `ask`"
        raise actor_error(actor, "external.undeclared", agent.undeclared, why)
    for each in agent.acts_for:
        if ROLE_OR_USER.match(each) is None:
            why = f"acts for `{each}`, which is neither `role:<role>` nor `user:<id>`"
            raise actor_error(actor, "external.acts_for", each, why)


def _check_callbacks(actor: Actor, given: Callbacks) -> None:
    where = "external.callbacks"
    for url in given.urls:
        if not is_callback_address(url):
            why = f"has the callback {quote_name(url)}; write an address with a path, such as https://jobs.example.com/"
            raise actor_error(actor, f"{where}.urls", url, why)
    # The declaration is printed and compared, so it must not hold a secret. Anyone could forge an unsigned callback.
    secrets = {name: value for name in ("secret", "previous_secret") if (value := getattr(given, name))}
    for name in literal_secrets(secrets):
        raise actor_error(actor, f"{where}.{name}", "", f"has a secret in `{where}.{name}`; write {FORMS} there")
    if given.urls and not given.secret:
        why = f"has `{where}.urls` without a `secret` to sign its posts: {FORMS}"
        raise actor_error(actor, f"{where}.secret", "", why)
    for name in given.workflows:
        if name == "*" or name.startswith(OWN_WORKFLOWS):
            why = f"names the workflows `{name}` for callbacks; write ids of your own, or their beginning, as `order-*`"
            raise actor_error(actor, f"{where}.workflows", name, why)
    try:
        for network in given.allow_networks:
            ip_network(network)
    except ValueError:
        why = f"needs in `{where}.allow_networks` networks such as `10.0.0.0/8`"
        raise actor_error(actor, f"{where}.allow_networks", "", why) from None


def _check_tools(actor: Actor, registry: ToolRegistry) -> None:
    for index, name in enumerate(actor.tools or ()):
        if name == RESPOND:
            raise actor_error(actor, "tools", name, "lists `respond`; every actor has it already, leave it out")
        if name == READ_REST:
            raise actor_error(actor, "tools", name, f"lists `{READ_REST}`; write `read_rest: true` instead")
        if name == COLLECT:
            why = f"lists `{COLLECT}`; a step that collects data adds it, leave it out"
            raise actor_error(actor, "tools", name, why)
        if registry.resolve(name) is None and name not in actor.own_names:
            near = did_you_mean(name, [*registry.list(), *actor.own_names])
            raise actor_error(actor, "tools", name, f"lists the unknown tool `{name}`{near}")
        named = registry.resolve(name)
        if named is not None and named.is_external and actor.external is None:
            why = (
                f"lists the tool `{name}`, which external agents run themselves; drop it, or make the actor `external`"
            )
            raise actor_error(actor, "tools", name, why)
        if name in (actor.tools or ())[:index]:
            raise actor_error(actor, "tools", name, f"lists the tool `{name}` twice; keep one")


def _check_case(actor: Actor, spelled: Mapping[str, str]) -> None:
    """Raise `ConfigError` for names that differ by case only: the reader of a card could confuse them."""
    own: dict[str, str] = {}
    for name in sorted(actor.own_names):
        folded = name.casefold()
        twin = next((each for each in (spelled.get(folded, name), own.setdefault(folded, name)) if each != name), "")
        if twin:
            why = f"has tools `{twin}` and `{name}`, which differ by case only; rename one of them"
            raise actor_error(actor, "own_tools", name, why)


def _check_secrets(actor: Actor) -> None:
    for name in literal_secrets(actor.model_settings):
        why = f"has a secret in `model_settings.{name}`; write {FORMS} there and put it where that leads"
        raise actor_error(actor, f"model_settings.{name}", "", why)


def _check_domain_data(actor: Actor) -> None:
    try:
        check_merge(actor.domain_merge)
        # Build the form and discard it: data that cannot be an argument of `respond` must fail here, not in the first
        # turn.
        respond_form(data=schema_text(actor.domain_data))
    except ConfigError as error:
        field = str(error.context.get("field", "domain_data"))
        raise actor_error(actor, field, error.context.get("value", ""), f"cannot have that: {error.message}") from error


def actor_error(actor: Actor, field: str, value: object, why: str) -> ConfigError:
    return ConfigError(f"actor `{actor.name}` {why}", actor=actor.name, field=field, value=value)


def _check_result_chars(actor: Actor) -> None:
    given = actor.result_chars
    # `bool` is an `int` in Python: `true` would mean a limit of one character.
    if given is not None and (type(given) is not int or not 1 <= given <= RESULT_BYTES):
        why = f"needs `result_chars` to be a whole number from 1 to {RESULT_BYTES}, as long as one result may be"
        raise actor_error(actor, "result_chars", given, why)


def _check_mode(actor: Actor) -> None:
    for field, value, allowed in (("mode", actor.mode, _MODES), ("on_failure", actor.on_failure, _ON_FAILURE)):
        if value not in allowed:
            words = ", ".join(f"`{each}`" for each in allowed)
            raise ConfigError(
                f"actor `{actor.name}` has `{field}` `{value}`; allowed: {words}",
                actor=actor.name,
                field=field,
                value=value,
            )
