"""Makes results of MCP's `tools/call` of how far a call has come. Pure."""

import json
from typing import Any

from signoff.contracts.responses import CallAnswer


def result_of(answer: CallAnswer) -> dict[str, Any]:
    """Returns the result for a call as it stands: its own, why it was not run, or how it is asked for later."""
    match answer.state:
        case "ended" if answer.code == "ok":
            return _outcome(answer)
        case "ended":
            return _error(_join(answer.note, _text(answer.result)))
        case "denied":
            return _error(_denied_words(answer))
    return _error(waiting_words(answer))


def waiting_words(answer: CallAnswer) -> str:
    """Says that a call is not settled, and how its result is got."""
    state = f"Waiting for approval, {answer.code}." if answer.code else "Not finished yet."
    return f"{state} Call the same tool with the same arguments later to get its result."


def _outcome(answer: CallAnswer) -> dict[str, Any]:
    # Beside the result, not in it: what people changed must not read as something that the tool said.
    texts = [*([answer.note] if answer.note else []), _text(answer.result)]
    found: dict[str, Any] = {"content": [{"type": "text", "text": text} for text in texts], "isError": False}
    return {**found, "structuredContent": answer.result} if isinstance(answer.result, dict) else found


def _denied_words(answer: CallAnswer) -> str:
    by = f" by {answer.by}" if answer.by else ""
    return f"Denied{by} ({answer.source}): {answer.reason}" if answer.reason else f"Denied{by} ({answer.source})."


def _error(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": True}


def _text(result: Any) -> str:
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


def _join(note: str, text: str) -> str:
    return f"{note}\n{text}" if note else text
