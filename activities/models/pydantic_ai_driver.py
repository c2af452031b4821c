"""Drives models by pydantic-ai's direct requests: any provider it knows, any OpenAI-compatible address.

Imported only when an actor names such a model: the library takes a second to load.
"""

import hashlib
import json
import logging
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import ValidationError
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import (
    AgentRunError,
    ContentFilterError,
    ModelAPIError,
    ModelHTTPError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from signoff.contracts.activity_messages import ModelTool
from signoff.contracts.completion import Completion, CompletionRequest, ProposedCall
from signoff.contracts.content import text_of
from signoff.contracts.errors import ConfigError, ModelNotSetUp, ModelRefused, ModelUnavailable
from signoff.contracts.message import CallPart, Message, ResultPart
from signoff.contracts.message import TextPart as Words
from signoff.contracts.names import OFFLINE_MODEL
from signoff.contracts.turn import TokenUsage
from signoff.formats.nearest_name import did_you_mean
from signoff.formats.read_only import writable_copy
from signoff.formats.visible_text import one_line
from signoff.registry.extras import EXTRAS

LIBRARY: Final = "pydantic-ai"
VERSION: Final = version("pydantic-ai-slim")
TIMEOUT: Final = 120.0
"""Default time limit of one request to the provider, in seconds. `model_settings` may override it."""
MAX_TOKENS: Final = 4_096
_VARIABLE: Final = re.compile(r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)`")
_KEYS: Final = ("_KEY", "_TOKEN")
"""Suffixes of variables that hold a key. Other variables hold an address or an account."""
# 408 (RFC 9110), 425 (RFC 8470) and 429 (RFC 6585) ask for a retry. OpenAI uses 409 for a lock, and its own client
# retries as well.
_WORDS_CHARS: Final = 300
_log = logging.getLogger("signoff.activities")
_TRY_AGAIN: Final = (408, 409, 425, 429)


class ProviderModel:
    """Drives one model. Created at worker start, to report a missing key or extra there."""

    def __init__(self, name: str, model: Model | None = None) -> None:
        self._model = model or _find(name)

    async def complete(self, request: CompletionRequest) -> Completion:
        """Send one request. Raises `ModelUnavailable` (429, 5xx, no connection) or `ModelRefused` (other 4xx)."""
        settings: dict[str, Any] = {"timeout": TIMEOUT, "max_tokens": MAX_TOKENS} | request.settings
        try:
            # Entering opens the provider's connections, and the last exit closes them.
            async with self._model:
                response = await model_request(
                    self._model,
                    to_library(request),
                    model_settings=ModelSettings(**settings),  # type: ignore[typeddict-item]
                    model_request_parameters=ModelRequestParameters(
                        function_tools=[_definition(tool) for tool in request.tools]
                    ),
                    # Otherwise global instrumentation would decide whether telemetry gets whole conversations.
                    instrument=False,
                )
        except (AgentRunError, UserError) as error:
            # Providers' errors quote the request, and Temporal stores causes in plain text.
            raise _translate_error(error, self._model) from None
        return from_library(response)


def to_library(request: CompletionRequest) -> list[ModelMessage]:
    """Reuses the provider's own responses if they still load."""
    found = [
        _response(message, provider) if message.role == "assistant" else _request(message, request.instructions)
        for message, provider in zip(request.messages, request.provider, strict=True)
    ]
    return _make_unique(found)


def from_library(response: ModelResponse) -> Completion:
    cut = response.finish_reason == "length"
    calls = tuple(
        ProposedCall(tool=part.tool_name, args=part.args, provider_call=part.tool_call_id, cut=cut)
        for part in response.parts
        if isinstance(part, ToolCallPart)
    )
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    refusal = (response.provider_details or {}).get("refusal")
    usage = TokenUsage(
        input_tokens=response.usage.input_tokens, output_tokens=response.usage.output_tokens, cost=_cost(response)
    )
    if not text and not calls and isinstance(refusal, str) and refusal:
        # The response has no part with this text. Later requests rebuild it from Signoff's own parts.
        return Completion(text=refusal, usage=usage, cut=cut)
    return Completion(text=text, calls=calls, usage=usage, provider=_pack(response), cut=cut)


def _find(name: str) -> Model:
    try:
        return infer_model(name)
    except UserError as error:
        raise _unusable(name, str(error)) from None
    except ImportError as error:
        # The extra was installed, or this import would not have been tried.
        raise ConfigError(
            f"the model `{name}` needs a library outside Signoff's extras: {_sentence(error)}",
            field="model",
            value=name,
        ) from None
    except (ValueError, AssertionError) as error:
        raise ConfigError(f"there is no model `{name}`: {_sentence(error)}", field="model", value=name) from None


def _unusable(name: str, message: str) -> ConfigError:
    """Return the error with Signoff's own remedy: the library's remedies do not help here."""
    variables = list(dict.fromkeys(_VARIABLE.findall(message)))
    provider, _, model = name.partition(":")
    if variables and model:
        named = " or ".join(variables)
        needed = " or ".join(f"`{each}`" for each in variables)
        remedy = "or name another model in the manifest or SIGNOFF_MODEL"
        if all(each.endswith(_KEYS) for each in variables):
            why = f"the model `{name}` needs a key: set {needed}, {remedy}"
            return ModelNotSetUp(why, f"{named} is not set", field="model", value=name)
        return ConfigError(f"the model `{name}` needs {needed}: set it, {remedy}", field="model", value=name)
    known = [each for each in EXTRAS if EXTRAS[each][0] == "pydantic_ai"]
    near = "" if provider in known else did_you_mean(provider, [*known, OFFLINE_MODEL])
    why = f"there is no model `{name}`{near}" if near else f"there is no model `{name}`: write `provider:name`"
    return ConfigError(why, field="model", value=name)


def _translate_error(error: Exception, model: Model) -> ModelUnavailable | ModelRefused | ConfigError:
    if isinstance(error, ModelHTTPError):
        message = f"the model's provider answered {error.status_code}"
        # Log it here only: the message may quote the conversation, which no history may hold in plain text.
        _log.warning("%s: %s", message, one_line(_provider_words(error.body), _WORDS_CHARS).text)
        if error.status_code == 404:
            return ModelRefused(f"{message} at {_address(model)}: {_not_found(model)}", status=404)
        if error.status_code in _TRY_AGAIN or error.status_code >= 500:
            return ModelUnavailable(message, retry_after=error.retry_after)
        return ModelRefused(message, status=error.status_code)
    if isinstance(error, ModelAPIError):
        return ModelUnavailable(f"the model's provider did not answer ({type(error).__name__})")
    if isinstance(error, ContentFilterError):
        return ModelRefused("the model's provider filtered the conversation")
    if isinstance(error, UnexpectedModelBehavior):
        # Answers vary: the next one may be readable.
        return ModelUnavailable("the model's provider sent an answer that cannot be read")
    if isinstance(error, UserError):
        return ConfigError(_sentence(error))
    return ModelRefused(f"the model's provider refused ({type(error).__name__})")


def _provider_words(body: object) -> str:
    """The whole body if it holds no message."""
    inner = body.get("error", body) if isinstance(body, Mapping) else body
    return str(inner.get("message", inner) if isinstance(inner, Mapping) else inner)


def _address(model: Model) -> str:
    # Remove the user info before `@`: it may hold a key, and this message appears in histories and on pages.
    parts = urlsplit(model.base_url or "")
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _not_found(model: Model) -> str:
    if model.system == "openai" and type(model).__name__ == "OpenAIResponsesModel":
        remedy = f"a server with chat completions alone takes `openai-chat:{model.model_name}`"
        return f"it knows no model `{model.model_name}`, or has no responses API; {remedy}"
    return f"it knows no model `{model.model_name}`, or nothing answers at that path"


def _request(message: Message, instructions: str) -> ModelRequest:
    return ModelRequest(parts=list(_request_parts(message)), instructions=instructions or None)


def _request_parts(message: Message) -> Iterator[UserPromptPart | ToolReturnPart]:
    for part in message.parts:
        match part:
            case Words():
                yield UserPromptPart(content=text_of(part.text))
            case ResultPart() if part.late:
                # Providers accept one result a call, directly after it. A second result becomes text.
                yield UserPromptPart(content=_convert_result(part))
            case ResultPart():
                yield ToolReturnPart(
                    tool_name=part.tool,
                    content=_convert_result(part),
                    # Some providers send no call id. Here and in `_response`, Signoff's own id replaces it, so that
                    # both agree.
                    tool_call_id=part.provider_call or part.call,
                    outcome="success"
                    if part.code in ("ok", "answered")
                    else "denied"
                    if part.code == "denied"
                    else "failed",
                )
            case CallPart():
                continue


def _convert_result(part: ResultPart) -> Any:
    """Convert a result for the model: the engine's note, then the tool's text."""
    value = part.value.inline
    if not part.note:
        return value
    return f"{part.note}\n\n{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"


def _response(message: Message, provider: bytes | None) -> ModelResponse:
    kept = _unpack(provider) if provider else None
    if kept is not None:
        return kept
    parts: list[TextPart | ToolCallPart] = []
    for part in message.parts:
        match part:
            case Words():
                parts.append(TextPart(content=text_of(part.text)))
            case CallPart():
                call = part.provider_call or part.call
                parts.append(ToolCallPart(tool_name=part.tool, args=part.args.inline, tool_call_id=call))
            case ResultPart():
                continue
    return ModelResponse(parts=parts)


def _pack(response: ModelResponse) -> bytes:
    body = {
        "library": LIBRARY,
        "version": VERSION,
        "messages": json.loads(ModelMessagesTypeAdapter.dump_json([response])),
    }
    # Half a character cannot be encoded: write `?` instead of ending the turn.
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _unpack(body: bytes) -> ModelResponse | None:
    """Return `None` if this version of the library cannot read the response."""
    try:
        # A turn may wait during upgrades of the library. Signoff's own parts replace an unreadable response.
        found = ModelMessagesTypeAdapter.validate_python(json.loads(body)["messages"])
    except (ValueError, KeyError, TypeError, ValidationError):
        return None
    return found[0] if len(found) == 1 and isinstance(found[0], ModelResponse) else None


def _definition(tool: ModelTool) -> ToolDefinition:
    # The library modifies a deep copy of the schema for its vendor. A deep copy of a read-only schema is read-only.
    parameters = writable_copy(tool.parameters)
    # The library sends `strict` only to providers that support it.
    return ToolDefinition(
        name=tool.name, description=tool.description, parameters_json_schema=parameters, strict=tool.strict
    )


def _cost(response: ModelResponse) -> float:
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        # The library's price list is incomplete: a model without a price must not end the turn.
        return 0.0


def _sentence(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].removesuffix(".")


def _make_unique(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Give each repeated call id, and its result, a new id.

    The results of an answer's calls follow it in the order of its calls. Unique ids are unchanged.
    """
    used: set[str] = set()
    waiting: dict[str, deque[str]] = defaultdict(deque)

    def name_call(given: str) -> str:
        chosen, number = given, 1
        while chosen in used:
            number += 1
            # Nine letters and digits suit every provider: Mistral requires that length.
            chosen = hashlib.sha256(f"{given}:{number}".encode()).hexdigest()[:9]
        used.add(chosen)
        waiting[given].append(chosen)
        return chosen

    def name_result(given: str) -> str:
        return waiting[given].popleft() if waiting[given] else given

    made: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            waiting.clear()
            calls = [
                replace(part, tool_call_id=name_call(part.tool_call_id)) if isinstance(part, ToolCallPart) else part
                for part in message.parts
            ]
            made.append(replace(message, parts=calls))
        else:
            results = [
                replace(part, tool_call_id=name_result(part.tool_call_id)) if isinstance(part, ToolReturnPart) else part
                for part in message.parts
            ]
            made.append(replace(message, parts=results))
    return made
