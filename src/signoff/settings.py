"""Reads settings: environment variables `SIGNOFF_*`, then `signoff.toml` in the working directory, then defaults.

Temporal's own rules read the connection to Temporal from `TEMPORAL_*`.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from signoff.client.environment import refuse_misspelt_variables
from signoff.contracts.errors import ConfigError
from signoff.contracts.limits import RESULT_BYTES, RESULT_CHARS_PER_BATCH
from signoff.contracts.names import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    DEFAULT_STATE_DIR,
    DEFAULT_TASK_QUEUE,
    ENV_PREFIX,
    OFFLINE_MODEL,
    PLUGIN_NAMES,
    SETTINGS_FILE,
)
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.formats.tenant_limits import parse_tenant_limits
from signoff.formats.web_address import address_of, is_loopback, is_loopback_host, web_address
from signoff.keys.secret_references import FORMS, is_reference

RETENTION_DAYS: Final = 90
_SECRETS: Final = ("oidc_client_secret", "encryption_keys")
"""Settings whose wrong values are not shown: the value may be the secret itself."""
_FOREIGN_PLUGIN: Final = re.compile(r"(?!signoff:)[A-Za-z0-9][A-Za-z0-9._-]*:[A-Za-z0-9_.-]+\Z")


def _default_store(known: Mapping[str, Any]) -> str:
    return f"sqlite:///{known.get('state_dir', DEFAULT_STATE_DIR)}/signoff.db"


def _default_signing_keys(known: Mapping[str, Any]) -> Path:
    return Path(known.get("state_dir", DEFAULT_STATE_DIR)) / "signing-keys.json"


def _default_public_keys(known: Mapping[str, Any]) -> Path:
    return Path(known.get("state_dir", DEFAULT_STATE_DIR)) / "public-keys.json"


def _default_encryption(known: Mapping[str, Any]) -> bool:
    return known.get("profile") == "production"


def _default_encryption_keys(known: Mapping[str, Any]) -> str:
    return f"file:{Path(known.get('state_dir', DEFAULT_STATE_DIR)) / 'encryption-keys.json'}"


def _default_url(known: Mapping[str, Any]) -> str:
    # Rejected fields are missing in `known`; they have their own error.
    return address_of(str(known.get("host", DEFAULT_HOST)), known.get("port"))


def _default_codec_url(known: Mapping[str, Any]) -> str:
    return address_of(str(known.get("host", DEFAULT_HOST)), known.get("codec_port"))


def _issuer(text: str) -> str:
    parts = urlsplit(text)
    # Over plain HTTP an attacker on the network could forge sign-ins. On this machine there is no network.
    plain = parts.scheme == "http" and is_loopback(text)
    if not parts.hostname or parts.query or parts.fragment or not (parts.scheme == "https" or plain):
        raise ValueError("an issuer looks like https://login.example.com/realm")
    # Unchanged, with a final slash: `iss` must match it exactly (OpenID Connect Core, 3.1.3.7).
    return text


def _reference(text: str) -> str:
    if not is_reference(text):
        raise ValueError(f"write where the secret is, {FORMS}, never the secret itself")
    return text


def _limits(text: str) -> str:
    parse_tenant_limits(text)
    return text


def _plugin_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in PLUGIN_NAMES and _FOREIGN_PLUGIN.match(name) is None:
            near = did_you_mean(name, PLUGIN_NAMES)
            raise ValueError(
                f"there is no plugin {quote_name(name)}{near}; another distribution's is `distribution:name`"
            )
        if names.count(name) > 1:
            raise ValueError(f"the plugin {quote_name(name)} is named twice")
    return names


def _object_name(text: str) -> str:
    module, _, attribute = text.partition(":")
    if text and not (attribute and all(part.isidentifier() for part in module.split("."))):
        raise ValueError("an object is named as `package.module:name`")
    return text


class Settings(BaseSettings):
    """The settings of an installation. Paths are relative to the working directory.

    Use `load_settings`, whose errors are sentences.
    """

    # Compose files and CI pass unset variables as empty ones: ignore these.
    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, toml_file=SETTINGS_FILE, extra="forbid", frozen=True
    )

    profile: Literal["development", "production"] = "development"
    app: str = ""
    """The program, `MODULE:APP`, instead of a manifest. The working directory is searched first."""
    manifest: Path = Path("signoff.yaml")
    """The YAML file that declares actors, tools and policies."""
    state_dir: Path = Path(DEFAULT_STATE_DIR)
    """The directory of the embedded server and the default store."""
    store_url: str = Field(default_factory=_default_store, min_length=1)
    """The database of tickets and blobs, a URL of SQLAlchemy. By default SQLite in `state_dir`."""
    store_listen_url: str = ""
    """A direct address of the same PostgreSQL, if `store_url` is a pooler's. Waiting requests hear of changes there."""
    task_queue: str = Field(default=DEFAULT_TASK_QUEUE, min_length=1, max_length=200)
    deployment: str = Field(default="", max_length=200, pattern=r"^[^.\s]*$")
    """The worker deployment of the workers. Without one they are not versioned."""
    build_id: str = Field(default="", max_length=200, pattern=r"^\S*$")
    """The worker's version in the deployment. By default made from Signoff's version and the catalog."""
    versioning: Literal["auto-upgrade", "pinned"] = "auto-upgrade"
    """Whether a turn moves to the current version, or keeps the version that it started with."""
    model: str = ""
    """The model, `provider:name`, that replaces the manifest's scripts."""
    host: str = Field(default=DEFAULT_HOST, min_length=1)
    """The address of the gateway."""
    port: int = Field(default=DEFAULT_PORT, ge=1, le=65535)
    """The port of the gateway."""
    unsafe_open: bool = False
    """Whether the development profile, which has no sign-in, serves other machines too."""
    raw_answers: bool = True
    """Whether the development profile accepts unsigned answers and starts, such as from Temporal's own UI."""
    words_hold: float | None = Field(default=None, ge=0, le=60)
    """Seconds that a text approval on a channel waits for later texts of its author.

    By default 5 in production and 0 in development.
    """
    codec_port: int = Field(default=8301, ge=1, le=65535)
    """The port of the codec server, at `host`."""
    codec_url: Annotated[str, AfterValidator(web_address)] = Field(default_factory=_default_codec_url)
    """The address of the codec server for Temporal's UI and command line. By default from `host` and `codec_port`."""
    public_url: Annotated[str, AfterValidator(web_address)] = Field(default_factory=_default_url)
    """The address of the gateway for people. By default from `host` and `port`."""
    log: Literal["text", "json"] = "text"
    """The format of a server's log: text for people, or JSON for a log collector."""
    otel: bool = False
    """Whether OpenTelemetry sends spans. `OTEL_*` sets the receiver."""
    metrics_port: int | None = Field(default=None, ge=1, le=65535)
    """The port for scrapes of this process's metrics. None by default."""
    metrics_host: str = Field(default=DEFAULT_HOST, min_length=1)
    """The address for scrapes."""
    people: Path | None = None
    """The YAML file of people. Without it, the development profile has `guest` and `approver`."""
    signing_keys: Path = Field(default_factory=_default_signing_keys)
    """The file of the gateway's private signing keys, which only the gateway reads. By default in `state_dir`."""
    public_keys: Path = Field(default_factory=_default_public_keys)
    """The file of public keys for the workers' checks, without secrets. By default in `state_dir`."""
    encryption: bool = Field(default_factory=_default_encryption)
    """Whether Temporal's data is encrypted. By default in production."""
    encryption_keys: Annotated[str, AfterValidator(_reference)] = Field(default_factory=_default_encryption_keys)
    """A reference to the encryption keys of workers and gateways. By default a file in `state_dir`."""
    secrets: Annotated[str, AfterValidator(_object_name)] = ""
    """The source of `secret:NAME`, `package.module:name`. Without it there are no such references."""
    plugins: Annotated[tuple[str, ...], AfterValidator(_plugin_names)] = PLUGIN_NAMES
    """The plugins that may be loaded: names of Signoff's own, and `distribution:name` for others."""
    oidc_issuer: Annotated[str, AfterValidator(_issuer)] | None = None
    """The OpenID Connect provider for sign-in, by its own issuer name. Without it, people sign in with tokens."""
    oidc_client_id: str = ""
    """The gateway's client id at the provider."""
    oidc_client_secret: Annotated[str, AfterValidator(_reference)] | None = None
    """A reference to the gateway's secret at the provider, such as `env:NAME`. None for a public client."""
    oidc_groups_claim: str = Field(default="groups", min_length=1)
    """The claim that lists a person's groups."""
    oidc_roles: dict[str, tuple[str, ...]] = {}
    """The roles of undeclared people, by group."""
    oidc_tenant_claim: str = ""
    """The claim that names a person's tenant. Without it, everyone who signs in has the tenant `main`."""
    oidc_tenants: dict[str, str] = {}
    """The tenant for each value of that claim. Without it, the value is the tenant's name."""
    oidc_mfa_acr: list[str] = []
    """The complete values of the claim `acr` that mean a second factor."""
    email_sign_in: str = ""
    """The channel, of kind `email`, that sends links for the sign-in to the inbox. Not with `oidc_issuer`."""
    calendar_words: tuple[str, ...] = ("Out of office", "OOO", "Away", "Vacation", "On leave", "Urlaub", "Abwesend")
    """The beginnings of titles that mean an absence, in calendars of people."""
    calendar_networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks with servers of calendars and rotas, besides the public internet, such as `10.0.0.0/8`."""
    oidc_days: int = Field(default=7, ge=1, le=90)
    """The number of days for which an undeclared person's sign-in data is valid."""
    tenant_limits: Annotated[str, AfterValidator(_limits)] = ""
    """A tenant's limits on starts, waiting requests and messages, see `parse_tenant_limits`. Unlimited by default."""
    result_chars: int = Field(default=RESULT_CHARS_PER_BATCH, ge=1, le=RESULT_BYTES)
    """The maximum number of result characters that a model reads per completion, unless its actor sets one."""
    trace: bool = False
    """Whether log and audit log name the tool of each call, with the winning and losing levels."""
    retention: int = Field(default=RETENTION_DAYS, ge=1, le=3650)
    """The number of days for which the embedded server keeps finished turns."""
    event_days: int = Field(default=30, ge=1, le=3650)
    """The number of days for which events are kept for readers. The audit log is kept without limit."""
    temporal_port: int = Field(default=7233, ge=1, le=65535)
    """The embedded server's port."""
    ui_port: int = Field(default=8233, ge=1, le=65535)
    """The port of the proxy for Temporal's own UI."""
    temporal_ui: str = Field(default="", pattern=r"^(https?://[^\s\"'<>]+)?$")
    """The address of Temporal's UI for people. If empty, the embedded server's. In production no link."""
    temporal_binary: Path | None = None
    """The `temporal` program. By default found on PATH."""
    durable: bool = False
    """Whether the embedded server keeps its last second after a power cut, at half the speed."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the sources. No other source is read."""
        # No `.env` and no directory of secrets: a setting must not come from an unexpected place.
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


class _GivenSettings(Settings):
    """Settings from arguments and defaults only."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(toml_file=None)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def load_settings(**overrides: Any) -> Settings:
    """Ignore overrides of `None`. Raises `ConfigError`, one sentence with the wrong variable, key or option."""
    refuse_misspelt_variables()
    return _make(Settings, overrides)


def given_settings(**given: Any) -> Settings:
    """Make settings without the environment and `signoff.toml`. `None` is ignored.

    Raises `ConfigError` as `load_settings` does.
    """
    return _make(_GivenSettings, given)


def _make(kind: type[Settings], values: Mapping[str, Any]) -> Settings:
    given = {name: value for name, value in values.items() if value is not None}
    try:
        return kind(**given)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"`{SETTINGS_FILE}` is not TOML: {_sentence(str(error))}", file=SETTINGS_FILE) from None
    except SettingsError as error:
        # It names the field and the source, and contains no value.
        raise ConfigError(f"a setting of several values is no JSON: {_sentence(str(error))}") from None
    except OSError as error:
        raise ConfigError(f"`{SETTINGS_FILE}` cannot be read: {error.strerror}", file=SETTINGS_FILE) from None
    except ValidationError as error:
        raise _config_error(error.errors()[0], given) from None


def encryption_file(settings: Settings) -> Path | None:
    """Return `None` if the keys come from elsewhere than a file."""
    kind, _, name = settings.encryption_keys.partition(":")
    return Path(name) if kind == "file" else None


def login_roles(settings: Settings) -> frozenset[str]:
    """Return the roles that undeclared people may have. Empty without a provider for sign-in."""
    mapped = settings.oidc_roles.values() if settings.oidc_issuer is not None else ()
    return frozenset(role for roles in mapped for role in roles)


def require_ready(settings: Settings, **there: bool) -> None:
    """Raise `ConfigError` for a production process with missing parts, naming all of them and the remedies.

    `there` maps each part to its presence: `people`, `signing_keys`, `public_keys`, `encryption_keys`, `login`.
    """
    missing = [name for name, found in there.items() if not found]
    if settings.profile == "production" and missing:
        needs = "; ".join(_NEEDS[name] for name in missing)
        raise ConfigError(f"`profile` is `production`, and this is missing: {needs}", field=missing[0])


def require_deployment(settings: Settings) -> None:
    if not settings.deployment and (settings.build_id or settings.versioning == "pinned"):
        raise ConfigError(
            "SIGNOFF_BUILD_ID and SIGNOFF_VERSIONING are about versions of a deployment: name it in "
            "SIGNOFF_DEPLOYMENT, or leave them out",
            field="deployment",
        )


def require_real_model(profile: str, models: Iterable[str]) -> None:
    """Raise `ConfigError` for the model `offline` in the production profile."""
    if profile == "production" and OFFLINE_MODEL in models:
        raise ConfigError(
            f"`profile` is `production`, and the model `{OFFLINE_MODEL}` is for first tries alone: name a provider's "
            "model in the manifest or SIGNOFF_MODEL, such as `openai:gpt-5`",
            field="model",
            value=OFFLINE_MODEL,
        )


def require_closed(settings: Settings) -> None:
    """Raise `ConfigError` if the development profile would serve other machines without a sign-in."""
    if settings.profile == "development" and not settings.unsafe_open and not is_loopback_host(settings.host):
        raise ConfigError(
            f"`{settings.host}` is open to the network, and the development profile asks for no sign-in: any caller "
            "could approve. Set SIGNOFF_HOST to 127.0.0.1, or SIGNOFF_PROFILE to production. To serve the network "
            "anyway, add --unsafe-open (SIGNOFF_UNSAFE_OPEN=true)",
            field="host",
            value=settings.host,
        )


def exposure_warnings(settings: Settings) -> tuple[str, ...]:
    """Return the risks of the addresses that people and browsers use."""
    if settings.profile == "development":
        if not settings.unsafe_open:
            return ()
        return (
            f"unsafe_open: every machine that reaches `{settings.host}` port {settings.port} can approve as any "
            "person, since the development profile asks for no sign-in",
        )
    addresses = {
        "SIGNOFF_PUBLIC_URL": settings.public_url,
        "SIGNOFF_CODEC_URL": settings.codec_url,
        "SIGNOFF_TEMPORAL_UI": settings.temporal_ui,
    }
    return tuple(
        f"{name} is `{address}`: tokens and cookies cross the network in plain text. Put a proxy with TLS in front "
        f"and write https:// in {name}"
        for name, address in addresses.items()
        if address.startswith("http:") and not is_loopback(address)
    )


_NEEDS: Final = {
    "people": "people, in a file named by SIGNOFF_PEOPLE or in the manifest",
    "signing_keys": "a key to sign with: `signoff keys create`, or name its file in SIGNOFF_SIGNING_KEYS",
    "public_keys": "public keys to check with: copy the output of `signoff keys export` from the gateway, and name "
    "the file in SIGNOFF_PUBLIC_KEYS",
    "encryption_keys": "a key to encrypt with: `signoff keys create` where the gateway is, and the file that "
    "SIGNOFF_ENCRYPTION_KEYS names on every machine (or SIGNOFF_ENCRYPTION=false)",
    "login": "a login: `signoff token create PERSON`, or name a provider in SIGNOFF_OIDC_ISSUER",
}


def _config_error(detail: ErrorDetails, given: Mapping[str, Any]) -> ConfigError:
    name = str(detail["loc"][0])
    if detail["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, list(Settings.model_fields), n=1)
        remedy = f"did you mean `{near[0]}`?" if near else "docs/settings.md lists all settings"
        where = "there is no setting" if name in given else f"`{SETTINGS_FILE}` has an unknown key"
        return ConfigError(f"{where} `{name}`: {remedy}", field=name)
    value = detail["input"]
    if name in _SECRETS:
        message = f"{_origin(name, given)} cannot be used: {_sentence(detail['msg'].removeprefix('Value error, '))}"
        return ConfigError(message, field=name)
    message = f"{_origin(name, given)} is `{value}`: {_sentence(detail['msg'].removeprefix('Value error, '))}"
    return ConfigError(message, field=name, value=value)


def _origin(name: str, given: Mapping[str, Any]) -> str:
    if name in given:
        return f"the setting `{name}`"
    variable = ENV_PREFIX + name.upper()
    if variable in {key.upper() for key in os.environ}:
        return f"the variable `{variable}`"
    return f"`{name}` in `{SETTINGS_FILE}`"


def _sentence(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line[:1].lower() + line[1:]
