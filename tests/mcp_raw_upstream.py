"""Sends an unchecked list of tools over standard streams: `python mcp_raw_upstream.py FOLDER`."""

import json
import sys
from pathlib import Path
from typing import Any


def answer(folder: Path, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        info = {"name": "raw", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": json.loads((folder / "tools.json").read_text())}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": f"ran {params['name']}"}]}
    return None


def serve(folder: Path) -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        result = answer(folder, request["method"], request.get("params", {}))
        body = {"error": {"code": -32601, "message": "unknown method"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **body}), flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
