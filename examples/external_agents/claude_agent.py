from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

from signoff_client import Gate
from signoff_client.claude_agent_sdk import approvals


async def run(options: ClaudeAgentOptions, gate: Gate, text: str) -> str | None:
    options.hooks = approvals(gate, {"Bash": "Bash", "Write": "Write", "mcp__shop__refund": "refund"})
    result = None
    async for message in query(prompt=text, options=options):
        if isinstance(message, ResultMessage):
            result = message.result
    return result
