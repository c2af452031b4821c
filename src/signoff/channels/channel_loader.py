"""Creates the channels of a manifest. A channel that cannot open is reported, and the others open anyway."""

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from signoff.channels.base import Channel, ChannelContext
from signoff.contracts.clock import Clock
from signoff.contracts.errors import ConfigError, SecretMissing, Unavailable
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.keys.secrets import SecretProvider
from signoff.registry.manifest.channel_sections import DeclaredChannel
from signoff.store.messages.contacts import ChannelContacts
from signoff.store.messages.push_subscriptions import PushSubscriptions
from signoff.store.store import Store

KEY: Final = "channel/"
"""Prefix, before a channel's name, of the name of the store's key for only that channel."""
KINDS: Final[Mapping[str, str]] = {
    "email": "signoff.channels.mail.email",
    "push": "signoff.channels.push.push",
    "slack": "signoff.channels.slack.slack",
    "webhook": "signoff.channels.webhook",
    "whatsapp": "signoff.channels.whatsapp.whatsapp",
}
"""The module of each built-in kind. Listed here, as searching for them would import every vendor's library."""


class ChannelPlugins(Protocol):
    """The channels that plugins add."""

    @property
    def kinds(self) -> tuple[str, ...]: ...

    def channel(self, kind: str) -> type[Channel] | None:
        """Return the class of a kind. None if no plugin can have it. Raises `ConfigError`."""
        ...


@dataclass(frozen=True)
class ChannelProblem:
    """Why a channel is missing, in one sentence with the remedy."""

    channel: str
    what: str


async def open_channels(
    declared: Iterable[DeclaredChannel],
    store: Store,
    *,
    public_url: str,
    clock: Clock,
    secrets: SecretProvider,
    plugins: ChannelPlugins,
) -> tuple[dict[str, Channel], list[ChannelProblem]]:
    """Create the channels by name, and the problems of the others. Raises `StoreUnavailable`. Calls no vendor."""
    opened: dict[str, Channel] = {}
    problems: list[ChannelProblem] = []
    for each in declared:
        # Not inside the `try`: without the store no channel can open, and that is not the channel's fault.
        secret = await store.secret_key(KEY + each.name)
        try:
            made = channel_class(each.kind, plugins)
            filled = await read_options(made, each.options, secrets)
            contacts = ChannelContacts(store, each.name)
            browsers = PushSubscriptions(store)
            context = ChannelContext(each.name, filled, public_url, clock, secret, contacts, browsers)
            opened[each.name] = made(context)
        except (ConfigError, Unavailable) as error:
            problems.append(ChannelProblem(each.name, secrets.redact(error.message)))
        except Exception as error:
            # Channel adapters are third-party code, and their errors may contain a secret.
            problems.append(ChannelProblem(each.name, f"it cannot be made: {type(error).__name__}"))
    return opened, problems


def channel_class(kind: str, plugins: ChannelPlugins) -> type[Channel]:
    """Return `CHANNEL` of a built-in module or of the module that the kind names, or a plugin's class.

    Raises `ConfigError`.
    """
    if kind not in KINDS and "." not in kind:
        plugin_class = plugins.channel(kind)
        if plugin_class is None:
            raise _unknown(kind, plugins)
        return plugin_class
    return _module_class(kind, KINDS.get(kind, kind), plugins)


def known_kinds(plugins: ChannelPlugins) -> tuple[str, ...]:
    """Return the built-in and the plugins' kinds, sorted."""
    return tuple(sorted((*KINDS, *plugins.kinds)))


def _module_class(kind: str, name: str, plugins: ChannelPlugins) -> type[Channel]:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        # The kind's own module is missing. Any other name is a package that the module imports.
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise _unknown(kind, plugins) from None
        why = f"it needs the Python module `{error.name}`, which is not installed"
        raise ConfigError(f"kind `{kind}`: {why}", field="kind", value=kind) from error
    # An import runs the module's code, which may even exit the process. The other channels must open anyway.
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise ConfigError(f"kind `{kind}`: its module cannot be imported: {why}", field="kind", value=kind) from error
    channel: Any = vars(module).get("CHANNEL")
    if not (isinstance(channel, type) and issubclass(channel, Channel)):
        why = f"module `{name}` has no `CHANNEL` that is a class of channel; end it in `CHANNEL = YourChannel`"
        raise ConfigError(f"kind `{kind}`: {why}", field="kind", value=kind)
    return channel


async def read_options(made: type[Channel], options: Mapping[str, Any], secrets: SecretProvider) -> dict[str, Any]:
    """Return the validated options, with secrets filled in.

    Raises `ConfigError`, without any value, and `Unavailable` if the source of a secret does not respond.
    """
    try:
        filled = await secrets.fill(options)
    except SecretMissing as error:
        raise ConfigError(f"it needs {error.message}", **error.context) from None
    try:
        made.options.model_validate(filled)
    except ValidationError as error:
        # Pydantic's own message quotes the input, and the secrets are already in it.
        errors = error.errors(include_url=False, include_input=False, include_context=False)
        raise ConfigError("; ".join(_sentence(made.options, each) for each in errors[:5]), field="options") from None
    return filled


def _sentence(options: type[BaseModel], error: ErrorDetails) -> str:
    path = ".".join(map(str, error["loc"]))
    if error["type"] == "missing":
        return f"it lacks the option `{path}`"
    if error["type"] == "extra_forbidden":
        near = did_you_mean(path, options.model_fields) if len(error["loc"]) == 1 else ""
        return f"there is no option {quote_name(path)}{near}"
    return f"option `{path}`: {error['msg'].removeprefix('Value error, ')}" if path else error["msg"]


def _unknown(kind: str, plugins: ChannelPlugins) -> ConfigError:
    known = known_kinds(plugins)
    near = did_you_mean(kind, known) or f"; known: {', '.join(f'`{each}`' for each in known)}"
    own = "; a channel of your own is named by its module, `package.module`"
    return ConfigError(f"there is no kind of channel {quote_name(kind)}{near}{own}", field="kind", value=kind)
