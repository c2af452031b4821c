"""The predicate of a remembered answer: which next calls it is for. Both engines must say `true`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from signoff.policy.bounds import out_of_bounds
from signoff.policy.compiled import CompiledPolicy
from signoff.policy.expression import Compiler, Expression, facts
from signoff.policy.shapes import Shape, pin_numbers


@dataclass(frozen=True)
class Predicate:
    """A checked CEL expression over `args`."""

    expression: Expression
    shape: Shape

    def holds(self, args: Mapping[str, Any]) -> bool:
        """Whether both engines say exactly `true` of these validated arguments. Never raises."""
        try:
            # In doubt a remembered answer does not apply: then people are asked again.
            if out_of_bounds(args):
                return False
            data = facts({"args": pin_numbers(args, self.shape)})
            return all(answer.kind == "true" for answer in self.expression.ask(data))
        except Exception:
            return False


def compile_where(where: str, policy: CompiledPolicy) -> Predicate:
    """The predicate `where` over the arguments of the policy's tool. Raises `ConfigError` that says what is wrong."""
    compiler = Compiler({"args": policy.args_shape}, "what to remember", policy.tool.name)
    return Predicate(compiler.compile("where", where), policy.args_shape)
