"""Makes channels from a manifest. One that cannot be made reports what it lacks; the others open anyway."""

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
from signoff.store.store import Store

KEY: Final = "channel/"
"""With a channel's name after it, the name of the store's key that only this channel is given."""
KINDS: Final[Mapping[str, str]] = {
    "email": "signoff.channels.mail.email",
    "slack": "signoff.channels.slack.slack",
    "webhook": "signoff.channels.webhook",
    "whatsapp": "signoff.channels.whatsapp.whatsapp",
}
"""The module of each kind of the core. Named, as a look for them would import every vendor's library."""


class ChannelPlugins(Protocol):
    """The channels that plugins add, as `signoff.plugins.loader` finds them."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that plugins add."""
        ...

    def channel(self, kind: str) -> type[Channel] | None:
        """Return the class of a kind; None if no plugin can have it. Raises `ConfigError`."""
        ...


@dataclass(frozen=True)
class ChannelProblem:
    """Why a channel is not there, in one sentence that says what to do."""

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
    """Returns the channels that can be made, by name, and why the others cannot. Raises `StoreUnavailable`.

    `secrets` reads those that the manifest refers to. Nothing is asked of any vendor.
    """
    opened: dict[str, Channel] = {}
    problems: list[ChannelProblem] = []
    for each in declared:
        # Not caught below: without the store none can be opened, and that is no fault of the channel.
        secret = await store.secret_key(KEY + each.name)
        try:
            made = channel_class(each.kind, plugins)
            context = ChannelContext(
                each.name, await read_options(made, each.options, secrets), public_url, clock, secret
            )
            opened[each.name] = made(context)
        except (ConfigError, Unavailable) as error:
            problems.append(ChannelProblem(each.name, secrets.redact(error.message)))
        except Exception as error:
            # Adapters are anybody's code, and their errors may hold a secret.
            problems.append(ChannelProblem(each.name, f"it cannot be made: {type(error).__name__}"))
    return opened, problems


def channel_class(kind: str, plugins: ChannelPlugins) -> type[Channel]:
    """Returns the class of a kind: `CHANNEL` of its module, of the core or named by the kind, or a plugin's.

    Raises `ConfigError`.
    """
    if kind not in KINDS and "." not in kind:
        found = plugins.channel(kind)
        if found is None:
            raise _unknown(kind, plugins)
        return found
    return _module_class(kind, KINDS.get(kind, kind), plugins)


def known_kinds(plugins: ChannelPlugins) -> tuple[str, ...]:
    """Returns the kinds that are there without anybody's own module, by name."""
    return tuple(sorted((*KINDS, *plugins.kinds)))


def _module_class(kind: str, name: str, plugins: ChannelPlugins) -> type[Channel]:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        # The kind itself is missing; any other name is that of a package which its module wants.
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise _unknown(kind, plugins) from None
        why = f"it needs the Python module `{error.name}`, which is not installed"
        raise ConfigError(f"kind `{kind}`: {why}", field="kind", value=kind) from error
    # An import runs whatever the module says, and one may even end the process; the other channels open anyway.
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise ConfigError(f"kind `{kind}`: its module cannot be imported: {why}", field="kind", value=kind) from error
    found: Any = vars(module).get("CHANNEL")
    if not (isinstance(found, type) and issubclass(found, Channel)):
        why = f"module `{name}` has no `CHANNEL` that is a class of channel; end it in `CHANNEL = YourChannel`"
        raise ConfigError(f"kind `{kind}`: {why}", field="kind", value=kind)
    return found


async def read_options(made: type[Channel], options: Mapping[str, Any], secrets: SecretProvider) -> dict[str, Any]:
    """Returns the options of a channel with its secrets in place, checked.

    Raises `ConfigError`, without any value, and `Unavailable` where the source of a secret does not answer.
    """
    try:
        given = await secrets.fill(options)
    except SecretMissing as error:
        raise ConfigError(f"it needs {error.message}", **error.context) from None
    try:
        made.options.model_validate(given)
    except ValidationError as error:
        # Pydantic's own message quotes what it was given, which by now holds the secrets.
        found = error.errors(include_url=False, include_input=False, include_context=False)
        raise ConfigError("; ".join(_sentence(made.options, each) for each in found[:5]), field="options") from None
    return given


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
