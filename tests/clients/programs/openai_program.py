from typing import Any

from agents import set_tracing_disabled
from agents.testing.model import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call
from script import serve


def make_model(turns: list[list[dict[str, Any]]]) -> ScriptedModel:
    made = [[function_call(each["name"], each["args"], call_id=each["id"]) for each in turn] for turn in turns]

    def repeat(call: ModelCall) -> Any:
        items = [dict(each) for each in call.input if not isinstance(each, str)]
        last = [str(each["output"]) for each in items if each.get("type") == "function_call_output"]
        return [assistant_message(" | ".join(last))]

    return ScriptedModel([*made, ModelStep.respond(repeat)])


set_tracing_disabled(True)
serve("openai_agent", make_model)
