"""MCP servers of a worker; all but `tool_servers` needs the extra `mcp`, and is loaded only where one is declared."""
