import mcp_types as types
from tables import table

from signoff.activities.mcp.worker_servers import call_result
from signoff.contracts.limits import RESULT_BYTES
from signoff.registry.tool_result import ToolFailure, ToolResult


def text(words: str) -> types.TextContent:
    return types.TextContent(text=words)


@table(
    ("block", "words"),
    (text("two\nlines"), "two\nlines"),
    (types.ImageContent(data="AAAA" * 100, mime_type="image/png"), "[an image, image/png, 300 bytes: left out]"),
    (types.AudioContent(data="AAAA", mime_type="audio/wav"), "[a sound, audio/wav, 3 bytes: left out]"),
    (types.ResourceLink(uri="file:///a\u202eb", name="a"), "[a resource: file:///a⟦U+202E⟧b, a]"),
    (
        types.EmbeddedResource(resource=types.TextResourceContents(uri="file:///a", text="inside")),
        "[the resource file:///a:]\ninside",
    ),
    (
        types.EmbeddedResource(resource=types.BlobResourceContents(uri="file:///a", blob="AAAA")),
        "[the resource file:///a, of no type, 3 bytes: left out]",
    ),
)
def test_each_content_type_becomes_text(block: types.ContentBlock, words: str) -> None:
    assert call_result(types.CallToolResult(content=[block])) == ToolResult(words)
    assert call_result(types.CallToolResult(content=[text("a"), block])) == ToolResult(f"a\n{words}")


def test_structured_content_is_kept_and_shown_only_without_text() -> None:
    both = types.CallToolResult(content=[text("7 degrees")], structured_content={"degrees": 7})
    assert call_result(both) == ToolResult("7 degrees", {"degrees": 7})
    alone = types.CallToolResult(content=[], structured_content=[1])
    assert call_result(alone) == ToolResult([1], [1])
    assert call_result(types.CallToolResult(content=[])) == ToolResult("")


def test_server_errors_become_failures_with_their_text() -> None:
    assert call_result(types.CallToolResult(content=[text("no")], is_error=True)) == ToolFailure("no")
    silent = call_result(types.CallToolResult(content=[], is_error=True))
    assert silent == ToolFailure("the tool failed at its server, without a word")


def test_long_answer_is_cut_to_the_result_limit() -> None:
    found = call_result(types.CallToolResult(content=[text("x" * (RESULT_BYTES + 7))]))
    assert found == ToolResult("x" * RESULT_BYTES)
