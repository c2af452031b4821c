"""A model that follows a script, for tests, and for demonstrations without a key."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from signoff.contracts.completion import Completion, CompletionRequest, ProposedCall
from signoff.contracts.content import text_of
from signoff.contracts.message import Message, ResultPart, TextPart
from signoff.contracts.names import RESPOND
from signoff.contracts.turn import TokenUsage

Reaction = Callable[[CompletionRequest], Completion | Awaitable[Completion]]

_USAGE = TokenUsage(input_tokens=10, output_tokens=5)


class ScriptedModel:
    """A driver that answers with `react(request)`.

    `signoff dev` offers the first of `examples`, messages that the script understands.
    """

    def __init__(self, react: Reaction, examples: Sequence[str] = ()) -> None:
        self._react = react
        self.examples = tuple(examples)

    async def complete(self, request: CompletionRequest) -> Completion:
        """Return the completion of `react(request)`."""
        answer = self._react(request)
        return await answer if inspect.isawaitable(answer) else answer


def steps(script: Sequence[Completion]) -> ScriptedModel:
    """Return a model that gives the completions of `script` in order, then repeats the last."""

    def react(request: CompletionRequest) -> Completion:
        done = sum(message.role == "assistant" for message in request.messages)
        return script[min(done, len(script) - 1)]

    return ScriptedModel(react)


def calls(*proposed: tuple[str, Any], text: str = "") -> Completion:
    """Return a completion with proposed calls: `calls(("book_flight", {...}), ...)`."""
    made = tuple(ProposedCall(tool=name, args=args, provider_call=f"p{n}") for n, (name, args) in enumerate(proposed))
    return Completion(text=text, calls=made, usage=_USAGE)


def respond(text: str, state: str = "complete", **more: Any) -> Completion:
    """Return a completion that ends the turn with `text`. `more` are other arguments of `respond`, such as `passTo`."""
    args = {"text": text, **({} if state == "complete" else {"state": state}), **more}
    return Completion(calls=(ProposedCall(tool=RESPOND, args=args, provider_call="respond"),), usage=_USAGE)


def say(text: str) -> Completion:
    """Return a completion of plain text. It ends the turn."""
    return Completion(text=text, usage=_USAGE)


def last_user_text(request: CompletionRequest) -> str:
    """Return the newest text of the user in the request, or ""."""
    texts = [part for m in request.messages if m.role == "user" for part in m.parts if isinstance(part, TextPart)]
    return text_of(texts[-1].text) if texts else ""


def results(request: CompletionRequest) -> tuple[ResultPart, ...]:
    """Return the results in the newest message, in call order, or () without any."""
    newest: Message | None = request.messages[-1] if request.messages else None
    if newest is None or newest.role != "tool":
        return ()
    return tuple(part for part in newest.parts if isinstance(part, ResultPart))
