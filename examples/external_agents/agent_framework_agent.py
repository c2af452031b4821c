from agent_framework import Agent, FunctionInvocationContext, FunctionMiddleware, tool

from signoff_client import CallKeys, Gate


def refund(order: str, euro: float) -> str:
    """Pays money back for an order."""
    return f"refunded {euro:.0f} EUR for {order}"


class Approvals(FunctionMiddleware):
    def __init__(self, gate: Gate, tools: set[str], conversation: str) -> None:
        self.gate, self.tools, self.keys = gate, tools, CallKeys(conversation)

    async def process(self, context: FunctionInvocationContext, call_next) -> None:
        name, id = context.function.name, context.metadata["call_id"]
        if name not in self.tools:
            await call_next()
            return
        async with self.gate.call(name, dict(context.arguments), key=self.keys.make(id)) as call:
            if call:
                context.arguments = call.args
                await call_next()
                call.result = " ".join(part.text for part in context.result if part.type == "text")
        if not call or call.note_text:
            context.result = call.text


async def run(model, gate: Gate, text: str, conversation: str) -> str:
    agent = Agent(model, tools=[tool(refund)], middleware=[Approvals(gate, {"refund"}, conversation)])
    return (await agent.run(text)).text
