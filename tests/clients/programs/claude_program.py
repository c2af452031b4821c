"""The Claude Agent SDK with its own command line. Our model endpoint needs no key and contacts no other service."""

import json
import os
import re
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import external_agents.claude_agent as example
from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server, tool
from script import serve

Turns = list[list[dict[str, Any]]]
MODEL = "claude-sonnet-4-5"
SCHEMA = {"order": str, "euro": float}
AROUND = re.compile(
    r"^(<system-reminder>\s*)?PreToolUse:\w+ hook (error|additional context): |\s*(</?system-reminder>.*)?$", re.DOTALL
)
"""The command line's text around the answer of a hook or a tool."""


class Handler(BaseHTTPRequestHandler):
    server: "Endpoint"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for event in _events(self.server.blocks(body)):
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


class Endpoint(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.turns: Turns = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def blocks(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        if body.get("tools") and self.turns:
            return [_tool_use(each) for each in self.turns.pop(0)]
        return [{"type": "text", "text": _repeat(body["messages"])}]


def _events(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": [], "usage": usage}
    made: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for index, block in enumerate(blocks):
        if block["type"] == "tool_use":
            start = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        else:
            start, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        made.append({"type": "content_block_start", "index": index, "content_block": start})
        made.append({"type": "content_block_delta", "index": index, "delta": delta})
        made.append({"type": "content_block_stop", "index": index})
    reason = "tool_use" if blocks[0]["type"] == "tool_use" else "end_turn"
    made.append({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage})
    return [*made, {"type": "message_stop"}]


def _tool_use(call: dict[str, Any]) -> dict[str, Any]:
    name = "mcp__shop__refund" if call["name"] == "refund" else call["name"]
    return {"type": "tool_use", "id": call["id"], "name": name, "input": call["args"]}


def _repeat(messages: list[dict[str, Any]]) -> str:
    parts = [part for each in messages for part in each["content"] if isinstance(part, dict)]
    texts = [_text(each) for each in parts if each["type"] == "tool_result" or "hook additional context" in str(each)]
    return " | ".join(AROUND.sub("", each) for each in texts)


def _text(part: dict[str, Any]) -> str:
    content = part.get("content") or part["text"]
    return content if isinstance(content, str) else content[0]["text"]


def make_options(turns: Turns) -> ClaudeAgentOptions:
    ENDPOINT.turns = list(turns)

    @tool("refund", "Pays money back for an order", SCHEMA)
    async def refund(args: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": example.refund(**args)}]}

    shop = create_sdk_mcp_server("shop", tools=[refund])
    return ClaudeAgentOptions(
        model=MODEL, mcp_servers={"shop": shop}, setting_sources=[], cwd=FOLDER.name, allowed_tools=["Bash"]
    )


FOLDER = tempfile.TemporaryDirectory()
ENDPOINT = Endpoint()
os.environ |= {
    "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{ENDPOINT.server_port}",
    "ANTHROPIC_API_KEY": "none",
    "CLAUDE_CONFIG_DIR": FOLDER.name,
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
}
serve("claude_agent", make_options)
