"""MCP servers whose tools Signoff runs: declarations and imports. Nothing here connects to a server."""
