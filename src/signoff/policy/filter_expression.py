"""Compiles tool filters. Both engines must return `true` to pass."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from signoff.formats.bounds import bounds_problem
from signoff.policy.context_shapes import ACTOR, TOOL, context_shape, judged_shape
from signoff.policy.expression import Compiler, Expression, check_timeless, facts
from signoff.policy.facts import ToolFacts
from signoff.policy.schema_shapes import DataShape, pin_numbers


@dataclass(frozen=True)
class CompiledFilter:
    """A filter, ready to be evaluated from any thread."""

    expression: Expression
    context_shape: DataShape

    def problem(self, *, actor: Mapping[str, Any], tool: ToolFacts, ctx: Mapping[str, Any]) -> str:
        """Return why `tool` does not pass, or "". `actor` has `name` and `tags`. Never raises."""
        try:
            problem = bounds_problem(actor) or bounds_problem(ctx)
            if problem:
                return f"cannot be asked: the data hold {problem}"
            pinned = {"actor": dict(actor), "tool": tool.as_cel(), "ctx": pin_numbers(ctx, self.context_shape)}
            kinds = {answer.kind for answer in self.expression.ask(facts(pinned))}
        except Exception as error:
            # An error lets nothing pass. Show only the error's type: its text may quote the context.
            return f"cannot be asked ({type(error).__name__})"
        if kinds == {"true"}:
            return ""
        return "is false" if kinds == {"false"} else "could not be evaluated"


def compile_filter(
    source: str, *, owner: str, field: str, context_schema: Mapping[str, Any] | None = None
) -> CompiledFilter:
    """`owner` starts every error. Raises `ConfigError` with `field`, `value` and `column`."""
    shape = context_shape(context_schema)
    # Compile as if `ctx.now` existed, so that the message names the remedy instead of a typo.
    compiler = Compiler({"tool": TOOL, "actor": ACTOR, "ctx": judged_shape(shape)}, owner)
    expression = compiler.compile(field, source)
    check_timeless(expression, owner)
    return CompiledFilter(expression, shape)
