"""Makes a tool's result of what an MCP server answers to a call: texts, data, and words in place of what is neither."""

from typing import Final

import mcp_types as types

from signoff.contracts.limits import RESULT_BYTES
from signoff.formats.visible_text import one_line
from signoff.registry.results.tool_result import Result, ToolFailure, ToolResult

_WORDS_CHARS: Final = 200
_BASE64: Final = (4, 3)


def call_result(answer: types.CallToolResult) -> Result:
    """Returns the result of an answered call. What the model cannot read is named: an image, its type and size."""
    text = "\n".join(_block_text(block) for block in answer.content)
    if answer.is_error:
        return ToolFailure(_cut(text) or "the tool failed at its server, without a word")
    structured = answer.structured_content
    # The specification has servers say what they return as text as well; not all of them do.
    value = structured if not answer.content and structured is not None else _cut(text)
    return ToolResult(value, structured)


def _block_text(block: types.ContentBlock) -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent():
            return _left_out("an image", block.mime_type, block.data)
        case types.AudioContent():
            return _left_out("a sound", block.mime_type, block.data)
        case types.ResourceLink():
            return f"[a resource: {_words(block.uri)}, {_words(block.name)}]"
        case types.EmbeddedResource():
            inner = block.resource
            if isinstance(inner, types.TextResourceContents):
                return f"[the resource {_words(inner.uri)}:]\n{inner.text}"
            return _left_out(f"the resource {_words(inner.uri)}", inner.mime_type or "of no type", inner.blob)


def _left_out(what: str, kind: str, base64: str) -> str:
    written, stands_for = _BASE64
    return f"[{what}, {_words(kind)}, {len(base64) * stands_for // written} bytes: left out]"


def _words(text: object) -> str:
    return one_line(str(text), _WORDS_CHARS).text


def _cut(text: str) -> str:
    # No more of a result is kept anywhere.
    return text if len(text) <= RESULT_BYTES else text[:RESULT_BYTES]
