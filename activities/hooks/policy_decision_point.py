"""Asks a policy decision point about calls by AuthZEN's Authorization API 1.0, as a policy handler.

It can only tighten: a permit abstains, a denial denies or asks, and a missing answer asks or denies.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from signoff.channels.channel_errors import NotDelivered
from signoff.channels.outbound_http import GuardedHttp, Resolve, read_networks, resolve_host
from signoff.contracts.clock import system_clock
from signoff.contracts.errors import ConfigError, SecretMissing, Unavailable
from signoff.contracts.limits import KIB
from signoff.formats.json_reader import NotJson, read_json
from signoff.keys.secret_references import FORMS, is_reference
from signoff.keys.secrets import SecretProvider
from signoff.policy.handler_verdict import HandlerCall, HandlerVerdict
from signoff.registry.hooks import POLICY_HANDLER
from signoff.registry.installation import provider_of_secrets
from signoff.settings import Settings

Mapped: TypeAlias = Callable[[HandlerCall, Mapping[str, Any]], Mapping[str, Any]]
"""`(call, context)`: returns the request with `subject`, `action`, `resource` and optionally `context`."""
DEFAULT_PATH: Final = "/access/v1/evaluation"
ACTION: Final = "tools/call"
"""The action of a call, by AuthZEN's mapping of tools."""
MAX_SECONDS: Final = POLICY_HANDLER.seconds
"""The total time of a policy handler, including the PDP's answer."""
_ANSWER_BYTES: Final = 64 * KIB
_REASONS: Final = ("reason_user", "reason", "reason_admin")
_REASON_CHARS: Final = 300

logger = logging.getLogger("signoff.activities")


class PolicyDecisionPoint:
    """A policy handler that asks an AuthZEN PDP. It only makes a policy stricter.

    Name it as `handler: module:its_name`. A permit leaves the verdict to the other rules.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        on_deny: Literal["deny", "ask"] = "deny",
        on_failure: Literal["ask", "deny"] = "ask",
        timeout: float = 3.0,
        allow_networks: Sequence[str] = (),
        endpoint: str = "",
        request: Mapped | None = None,
        secrets: SecretProvider | None = None,
        resolve: Resolve = resolve_host,
    ) -> None:
        """Declare the PDP at `url`. Raises `ConfigError`.

        `token` is a reference to its bearer token (`env:NAME`, `file:PATH`, `secret:NAME`). `on_deny` is the effect of
        a denial. `on_failure` is the effect of an invalid answer, or none within `timeout` seconds. `allow_networks`
        are permitted networks outside the public internet, and the only ones without TLS. `endpoint` is the
        `access_evaluation_endpoint` if it differs from the default. `request` replaces the standard request.
        """
        _check_choice("on_deny", on_deny, ("deny", "ask"))
        _check_choice("on_failure", on_failure, ("ask", "deny"))
        if token and not is_reference(token):
            raise ConfigError(f"`token` of a policy decision point is a reference: {FORMS}", field="token")
        if not 0 < timeout < MAX_SECONDS:
            raise ConfigError(
                f"`timeout` of a policy decision point is above 0 and below {MAX_SECONDS:g} seconds",
                field="timeout",
                value=timeout,
            )
        self._endpoint = endpoint or url.rstrip("/") + DEFAULT_PATH
        self._host = _read_host(self._endpoint)
        self._token = token
        self._on_deny = on_deny
        self._on_failure = on_failure
        self._timeout = timeout
        self._networks = _read_networks(allow_networks)
        self._request = request or evaluation_request
        self._secrets = secrets
        self._resolve = resolve
        # One client an event loop, because connections belong to a loop and a command uses several loops.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, GuardedHttp] = WeakKeyDictionary()

    async def __call__(self, call: HandlerCall, context: dict[str, Any]) -> HandlerVerdict:
        """Ask the PDP about a call. Raises `Unavailable` if a failure asks approvers."""
        try:
            permitted, reason = await self._evaluate(call, context)
        # This includes an error while building the request: no failure may let a call pass.
        except Exception as error:
            why = self._describe_failure(error)
            logger.warning("the policy decision point %s gave no answer: %s", self._host, why)
            if self._on_failure == "deny":
                return HandlerVerdict("deny", reason=f"the policy decision point gave no answer: {why}")
            # Raise instead of answering: the question then has another rule.
            raise Unavailable(f"the policy decision point gave no answer: {why}") from None
        if permitted:
            return HandlerVerdict("abstain")
        return HandlerVerdict(self._on_deny, reason=reason or "the policy decision point does not permit it")

    async def _evaluate(self, call: HandlerCall, context: Mapping[str, Any]) -> tuple[bool, str]:
        body = json.dumps(dict(self._request(call, context)), allow_nan=False).encode()
        headers = {"content-type": "application/json", "accept": "application/json"}
        if self._token:
            headers["authorization"] = f"Bearer {(await self._provider().read(self._token)).strip()}"
        answer = await self._client().post(self._endpoint, body, headers, answer_bytes=_ANSWER_BYTES)
        if answer.status != 200:
            raise NotDelivered(f"it answered {answer.status}", code=str(answer.status), again=False)
        return read_decision(answer.body)

    def _client(self) -> GuardedHttp:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = GuardedHttp(self._networks, self._timeout, self._resolve)
        return self._clients[loop]

    def _provider(self) -> SecretProvider:
        # Resolve it when first needed: checking a manifest needs no source of secrets.
        if self._secrets is None:
            self._secrets = provider_of_secrets(Settings())
        return self._secrets

    def _describe_failure(self, error: Exception) -> str:
        if isinstance(error, NotDelivered | SecretMissing | Unavailable):
            return error.message if self._secrets is None else self._secrets.redact(error.message)
        # Name the class alone: the message may quote a secret argument.
        return type(error).__name__


def evaluation_request(call: HandlerCall, context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request about a call: requester, tool as the resource, arguments with the action."""
    user = context.get("user")
    person = dict(user) if isinstance(user, Mapping) else {}
    agent = context.get("actor", "")
    return {
        "subject": {
            "type": "user",
            "id": str(person.pop("id", "")),
            "properties": {**_plain(person), "act": {"sub": agent, "sub_profile": "ai_agent"}},
        },
        "action": {"name": ACTION, "properties": {"arguments": call.args}},
        "resource": {"type": "tool", "id": call.tool.name, "properties": {"tags": list(call.tool.tags)}},
        "context": {
            "time": system_clock().isoformat(),
            "agent": agent,
            **{name: context[name] for name in ("tenant", "session", "turn", "channel") if context.get(name)},
        },
    }


def read_decision(body: bytes) -> tuple[bool, str]:
    """Return whether a PDP permits a call, and its reason. Raises `NotDelivered` for an invalid decision.

    A permit with obligations is invalid: Signoff cannot fulfil them, and they are part of the permit.
    """
    try:
        answer = read_json(body)
    except NotJson:
        raise NotDelivered("its answer is no JSON", code="unreadable", again=False) from None
    decision = answer.get("decision") if isinstance(answer, dict) else None
    context = answer.get("context", {}) if isinstance(answer, dict) else None
    # Do not test truthiness: the text "false" would permit.
    if not isinstance(decision, bool) or not isinstance(context, dict):
        raise NotDelivered("its answer is no decision", code="unreadable", again=False)
    if decision and context.get("obligations"):
        raise NotDelivered("it permits with obligations, which Signoff cannot meet", code="obligations", again=False)
    return decision, _reason_of(context)


def _reason_of(context: Mapping[str, Any]) -> str:
    for name in _REASONS:
        reason = context.get(name)
        # The specification's examples use keys such as an HTTP code or a language.
        text = next(iter(reason.values()), "") if isinstance(reason, dict) else reason
        if isinstance(text, str) and text:
            return text[:_REASON_CHARS]
    return ""


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if isinstance(value, str | int | float | bool | list | dict)}


def _read_host(endpoint: str) -> str:
    try:
        parts = urlsplit(endpoint)
        # Read the port to validate it: an invalid one would otherwise fail at the first call.
        _ = parts.port
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in ("https", "http") or not parts.hostname or "@" in parts.netloc:
        raise ConfigError(
            "a policy decision point needs an address such as https://pdp.example.com", field="url", value=endpoint
        )
    return parts.hostname


def _read_networks(written: Sequence[str]) -> tuple[Any, ...]:
    try:
        return read_networks(written)
    except ValueError:
        raise ConfigError(
            "`allow_networks` of a policy decision point are networks such as `10.0.0.0/8`",
            field="allow_networks",
            value=str(written),
        ) from None


def _check_choice(name: str, given: str, known: tuple[str, str]) -> None:
    if given not in known:
        words = f"`{name}` of a policy decision point is `{known[0]}` or `{known[1]}`"
        raise ConfigError(words, field=name, value=given)
