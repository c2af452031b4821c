"""MCP servers of a worker. All modules except `tool_servers` need the extra `mcp`, and load only if one is declared."""
