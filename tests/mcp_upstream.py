"""An MCP server controlled by files in one directory. It imports nothing of ours, for a quick start.

`python mcp_upstream.py FOLDER` serves over standard streams, in both eras of the protocol."""

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

TEXT: Final = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
_TOOLS: Final = ("note", "wait", "die", "data", "fail", "later", "ask", "no", "task")


def default_tools() -> list[dict[str, Any]]:
    tools = [{"name": name, "description": f"Tool {name}", "inputSchema": TEXT} for name in _TOOLS]
    output = {"type": "object", "properties": {"length": {"type": "integer"}}, "required": ["length"]}
    return [{**each, "outputSchema": output} if each["name"] == "data" else each for each in tools]


@dataclass
class Upstream:
    folder: Path

    @property
    def tools(self) -> list[dict[str, Any]]:
        path = self.folder / "tools.json"
        found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else default_tools()
        return found

    @tools.setter
    def tools(self, tools: list[dict[str, Any]]) -> None:
        part = self.folder / "tools.part"
        part.write_text(json.dumps(tools))
        part.replace(self.folder / "tools.json")

    def change(self, name: str, **fields: Any) -> None:
        self.tools = [each | fields if each["name"] == name else each for each in self.tools]

    @property
    def calls(self) -> list[list[Any]]:
        """Each entry: the tool, its arguments and the protocol's version."""
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def looks(self) -> list[list[str]]:
        """Each entry: `get` or `cancel`, and the task."""
        path = self.folder / "looks"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def processes(self) -> list[int]:
        path = self.folder / "processes"
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []

    def forget_calls(self) -> None:
        (self.folder / "calls").unlink(missing_ok=True)
        (self.folder / "looks").unlink(missing_ok=True)

    async def begun(self, number: int) -> None:
        while len(self.calls) < number:
            await asyncio.sleep(0.02)

    def write(self, name: str, line: str) -> None:
        with (self.folder / name).open("a") as file:
            file.write(line + "\n")

    def server(self) -> Server[Any]:
        async def on_list(ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
            # Two pages, so that the first is not mistaken for all.
            tools = [types.Tool.model_validate(each) for each in self.tools]
            first = params is None or params.cursor is None
            half = len(tools) // 2
            return types.ListToolsResult(
                tools=tools[:half] if first else tools[half:],
                next_cursor="second" if first else None,
                ttl_ms=0,
                cache_scope="private",
            )

        async def on_call(
            ctx: Any, params: types.CallToolRequestParams
        ) -> types.CallToolResult | types.InputRequiredResult | dict[str, Any]:
            self.write("calls", json.dumps([params.name, params.arguments, ctx.protocol_version]))
            if params.name == "task":
                return {"resultType": "task", **_task(str((params.arguments or {})["text"]), "working")}
            return await _answer(params)

        async def on_get(ctx: Any, params: _TaskParams) -> dict[str, Any]:
            self.write("looks", json.dumps(["get", params.task_id]))
            return {"resultType": "complete", **_task_state(params.task_id, self.looks.count(["get", params.task_id]))}

        async def on_cancel(ctx: Any, params: _TaskParams) -> dict[str, Any]:
            self.write("looks", json.dumps(["cancel", params.task_id]))
            return {"resultType": "complete"}

        server: Server[Any] = Server("upstream", on_list_tools=on_list)
        server.add_request_handler("tools/call", types.CallToolRequestParams, on_call)
        server.extensions["io.modelcontextprotocol/tasks"] = {}
        server.add_request_handler("tasks/get", _TaskParams, on_get)
        server.add_request_handler("tasks/cancel", _TaskParams, on_cancel)
        return server


class _TaskParams(types.RequestParams):
    task_id: str


def _task(name: str, status: str, **more: Any) -> dict[str, Any]:
    at = "2026-01-05T00:00:00Z"
    times = {"createdAt": at, "lastUpdatedAt": at, "ttlMs": None, "pollIntervalMs": 10}
    return {"taskId": name, "status": status, **times, **more}


def _task_state(name: str, looks: int) -> dict[str, Any]:
    if name == "die" and looks == 1:
        os._exit(1)
    if looks < 2 or name == "forever":
        return _task(name, "working")
    match name:
        case "failed":
            return _task(name, "failed", error={"code": -32603, "message": "the bank is closed"})
        case "asks":
            return _task(name, "input_required", inputRequests={})
        case "cancelled":
            return _task(name, "cancelled")
        case "lost":
            raise MCPError(code=types.INVALID_PARAMS, message="no such task")
        case "nonsense":
            return _task(name, "completed", result={"content": 7})
    result = types.CallToolResult(content=[types.TextContent(text=f"done: {name}")])
    return _task(name, "completed", result=result.model_dump(mode="json", by_alias=True, exclude_none=True))


async def _answer(params: types.CallToolRequestParams) -> types.CallToolResult | types.InputRequiredResult:
    text = str((params.arguments or {}).get("text", ""))
    match params.name:
        case "wait":
            await asyncio.Event().wait()
        case "die":
            os._exit(1)
        case "data":
            return types.CallToolResult(content=[], structured_content={"length": len(text) if text else "none"})
        case "fail":
            return types.CallToolResult(content=[types.TextContent(text=f"no {text} here")], is_error=True)
        case "later" if params.request_state is None:
            return types.InputRequiredResult(request_state="halfway")
        case "ask":
            asked = types.ElicitRequestFormParams(message="who?", requested_schema={"type": "object", "properties": {}})
            return types.InputRequiredResult(input_requests={"who": types.ElicitRequest(params=asked)})
        case "no":
            raise MCPError(code=-32011, message=f"refused: {text}")
    return types.CallToolResult(content=[types.TextContent(text=f"done: {text}")])


async def _main(folder: Path) -> None:
    upstream = Upstream(folder)
    upstream.write("processes", str(os.getpid()))
    server = upstream.server()
    async with stdio_server() as (read, write):
        if (folder / "garbage").exists():
            # Output of a program that ignores the protocol on its standard output.
            os.write(1, b'Listening...\n{"jsonrpc": "2.0", "id": 99, "result": 7}\n\xff\xfe[1, 2\n')
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
