"""MCP servers whose tools Signoff runs: declarations and imports. Nothing here speaks to a server."""
