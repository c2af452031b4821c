"""Compiles the predicate of a grant, which selects its calls.

Both engines must return `true`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from signoff.contracts.errors import ConfigError
from signoff.contracts.limits import PREDICATE_CHARS, PREDICATE_MACROS
from signoff.formats.bounds import bounds_problem
from signoff.policy.compiled_policy import CompiledPolicy
from signoff.policy.cost import cost_of, sizes_at_most
from signoff.policy.expression import Compiler, Expression, facts
from signoff.policy.extent import counted_extents
from signoff.policy.paths import reachable_paths, spell
from signoff.policy.schema_shapes import DataShape, pin_numbers
from signoff.policy.syntax import macro_depth

_OWNER: Final = "what to remember"
_SHOWN: Final = 300


@dataclass(frozen=True)
class GrantPredicate:
    """A checked CEL expression over `args`."""

    expression: Expression
    shape: DataShape

    def holds(self, args: Mapping[str, Any]) -> bool:
        """Both engines must return exactly `true` for these validated arguments. Never raises."""
        try:
            # In doubt the grant does not apply, and approvers are asked again.
            if bounds_problem(args):
                return False
            data = facts({"args": pin_numbers(args, self.shape)})
            return all(answer.kind == "true" for answer in self.expression.ask(data))
        except Exception:
            return False

    def hidden_read(self, hidden: Collection[str]) -> str:
        """Return why the predicate must not be used while dotted argument names are `hidden`, or "".

        Its result would reveal them to an approver, one guess at a time.
        """
        for path, name in reachable_paths(self.expression.second.tree, {"args": self.shape}, hidden, "args"):
            return (
                f"`{spell(path)}` may read `{name}`, which is hidden from who decides; name other arguments one by one"
            )
        return ""

    def steps(self, args: Mapping[str, Any]) -> int:
        return (
            0 if bounds_problem(args) else cost_of(self.expression.second.tree, counted_extents({"args": args})).steps
        )


def compile_where(where: str, policy: CompiledPolicy, hidden: Collection[str] = ()) -> GrantPredicate:
    """Compile the predicate `where` over the arguments of the policy's tool. Raises `ConfigError` that names the
    problem.

    An approver writes it, and it is evaluated on other people's calls. Therefore it may do less than a rule of the
    manifest, and must not read the arguments `hidden` (dotted names).
    """
    if len(where) > PREDICATE_CHARS:
        raise _refuse(where, policy, f"it has {len(where)} characters; at most {PREDICATE_CHARS} are allowed")
    variables = {"args": policy.args_shape}
    expression = Compiler(variables, _OWNER, policy.tool.name).compile("where", where)
    tree = expression.second.tree
    if macro_depth(tree) > PREDICATE_MACROS:
        raise _refuse(where, policy, "it has a macro in a macro, which only the manifest may have; split it")
    if cost_of(tree, sizes_at_most(variables, nodes=1, text=1)).joins:
        raise _refuse(where, policy, "`+` within a macro adds numbers only; texts and lists grow with each item")
    predicate = GrantPredicate(expression, policy.args_shape)
    if why := predicate.hidden_read(hidden):
        raise _refuse(where, policy, why)
    return predicate


def _refuse(where: str, policy: CompiledPolicy, why: str) -> ConfigError:
    shown = where if len(where) <= _SHOWN else f"{where[:_SHOWN]}..."
    message = f"{_OWNER}: `where`: {why} (in `{shown}`)"
    return ConfigError(message, tool_name=policy.tool.name, field="where", value=where, column=0)
