"""Writes the values that made a rule ask: `Amount 420.00 EUR > 50.00`."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from signoff.approvals.confirmation import is_money
from signoff.contracts.approval import ApprovalRequest
from signoff.policy.comparisons import Comparison, deciding_comparisons
from signoff.policy.compiled_policy import CompiledPolicy
from signoff.policy.expression import Expression
from signoff.policy.policy_stack import StackedPolicy
from signoff.registry.catalog import Catalog
from signoff.texts.formatter import Formatter

_RESULTS: Final[Mapping[str, bool]] = {"require_approval_if": True, "auto_approve_if": False}
"""The result with which each rule of a policy asks."""


def rule_values(request: ApprovalRequest, args: Any, catalog: Catalog, formatter: Formatter) -> str:
    """Return "" if the card does not show the compared values, or the gateway's catalog lacks the rule.

    Reads only an expression that the gateway compiled itself, never the text of a question.
    """
    rule = request.rule
    if rule is None or rule.kind != "policy" or rule.handler or not isinstance(args, Mapping):
        return ""
    expressions = _expressions(request.tool, rule.name, catalog)
    expression = next((each for each in expressions if each.text == request.rule_text), None)
    result = _RESULTS.get(rule.name)
    if expression is None or result is None:
        return ""
    found = deciding_comparisons(expression.second.tree, args, result=result)
    return ", ".join(filter(None, (_words(each, request, formatter) for each in found)))


def _expressions(tool: str, rule: str, catalog: Catalog) -> Iterator[Expression]:
    for each in catalog.tools_named(tool):
        for policy in _policies(catalog.policy(each.activity)):
            if rule in policy.expressions:
                yield policy.expressions[rule]


def _policies(policy: CompiledPolicy) -> Iterator[CompiledPolicy]:
    yield policy
    if isinstance(policy, StackedPolicy):
        for each in policy.below:
            yield from _policies(each.policy)


def _words(found: Comparison, request: ApprovalRequest, formatter: Formatter) -> str:
    row = next((each for each in request.card.rows if each.name == found.name), None)
    # Only values that the card shows: the others may be secret.
    if row is None or row.secret or row.cut:
        return ""
    limit = found.limit if isinstance(found.limit, str) else formatter.number(found.limit, 2 if is_money(row) else 0)
    return f"{formatter.label(row.label)} {formatter.value(row, request.card.rows)} {found.sign} {limit}"
