"""The extras of the distribution: the modules of each, and the message for a missing one."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from signoff.contracts.errors import ConfigError
from signoff.contracts.names import OFFLINE_MODEL

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "mail": ("dkim", "dns", "aiosmtplib", "aiosmtpd", "imap_tools"),
    "slack": ("websockets",),
    "push": ("http_ece", "py_vapid"),
    "teams": ("joserfc",),
    "apprise": ("apprise",),
    "mcp": ("mcp",),
    "metrics": ("prometheus_client",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "oidc": ("authlib", "joserfc"),
    "calendar": ("icalendar", "dateutil"),
    "openai": ("pydantic_ai", "openai"),
    "anthropic": ("pydantic_ai", "anthropic"),
    "google": ("pydantic_ai", "google.genai"),
    "mistral": ("pydantic_ai", "mistralai"),
    "groq": ("pydantic_ai", "groq"),
    "bedrock": ("pydantic_ai", "boto3"),
}
"""Modules by the extra that brings them."""
CHANNEL_EXTRAS: Final[Mapping[str, str]] = {
    "email": "mail",
    "push": "push",
    "slack": "slack",
    "teams": "teams",
    "apprise": "apprise",
}
"""The extra that a kind of channel needs."""
PROVIDERS: Final = frozenset((
    "alibaba", "anthropic", "azure", "azure-responses", "bedrock", "cerebras", "crusoe", "deepseek", "fireworks",
    "github", "github-copilot", "google", "google-cloud", "groq", "heroku", "litellm", "meta", "mistral",
    "moonshotai", "nebius", "ollama", "openai", "openai-chat", "openai-responses", "openrouter", "ovhcloud",
    "sambanova", "snowflake", "together", "vercel", "vllm", "zai",
))  # fmt: skip
"""Providers that an extra of Signoff can reach, for use before the extra is installed."""


def missing_extra(extra: str) -> str:
    """Return the end of a sentence with the install command, or "" if `extra` is installed."""
    if all(map(_is_installed, EXTRAS[extra])):
        return ""
    return f"needs an extra of Signoff: pip install 'signoff[{extra}]'"


def require_extra(extra: str, variable: str) -> None:
    """Raise `ConfigError` if a setting, named by its variable, needs an extra that is not installed."""
    if missing := missing_extra(extra):
        raise ConfigError(f"{variable} {missing}", field=variable)


def extra_of_model(model: str) -> str:
    """Return the extra that the model `provider:name` needs; "" for a script, `offline` or an external actor.

    Most providers speak OpenAI's protocol, so a provider without its own extra needs OpenAI's.
    """
    provider = model.partition(":")[0]
    if provider in ("", "scripted") or model == OFFLINE_MODEL:
        return ""
    named = (extra for extra, modules in EXTRAS.items() if modules[0] == "pydantic_ai" and provider.startswith(extra))
    return next(named, "openai")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    # The module's package is missing too.
    except ModuleNotFoundError:
        return False
