from strands import Agent, tool
from strands.hooks import AfterToolCallEvent, BeforeToolCallEvent, HookProvider, HookRegistry

from signoff_client import Call, CallKeys, Gate
from signoff_client.messages import same_arguments


def refund(order: str, euro: float) -> str:
    """Pays money back for an order."""
    return f"refunded {euro:.0f} EUR for {order}"


class Approvals(HookProvider):
    def __init__(self, gate: Gate, tools: set[str], conversation: str) -> None:
        self.gate, self.tools, self.keys = gate, tools, CallKeys(conversation)
        self.calls: dict[str, Call] = {}
        self.proposed: dict[str, dict] = {}

    def register_hooks(self, registry: HookRegistry, **kwargs) -> None:
        registry.add_callback(BeforeToolCallEvent, self.ask)
        registry.add_callback(AfterToolCallEvent, self.report)

    async def ask(self, event: BeforeToolCallEvent) -> None:
        name, id, args = event.tool_use["name"], event.tool_use["toolUseId"], event.tool_use["input"]
        if name not in self.tools:
            return
        if call := self.suspended(id, name, args):
            event.tool_use = {**event.tool_use, "input": call.args}
            return
        said = [(message["role"], message["content"]) for message in event.agent.messages]
        call = self.gate.call(name, args, key=self.keys.make(said, id))
        if await call.__aenter__():
            event.tool_use = {**event.tool_use, "input": call.args}
            self.calls[id], self.proposed[id] = call, args
        else:
            event.cancel_tool = call.text

    def suspended(self, id: str, name: str, args: dict) -> Call | None:
        # A tool that interrupts is never reported: Strands asks about it again when it resumes the call.
        call = self.calls.get(id)
        return call if call and call.tool == name and same_arguments(self.proposed[id], args) else None

    async def report(self, event: AfterToolCallEvent) -> None:
        call = self.calls.pop(event.tool_use["toolUseId"], None)
        if call is None:
            return
        words = " ".join(part["text"] for part in event.result["content"] if "text" in part)
        if event.result["status"] == "error":
            call.fail(words)
        else:
            call.result = words
        await call.__aexit__(event.exception and type(event.exception), event.exception, None)
        if call.note_text:
            event.result["content"].append({"text": call.note_text})


async def run(model, gate: Gate, text: str, conversation: str) -> str:
    hooks = [Approvals(gate, {"refund"}, conversation)]
    agent = Agent(model, tools=[tool(refund)], hooks=hooks, callback_handler=None)
    return str(await agent.invoke_async(text)).strip()
