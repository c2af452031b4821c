"""The function that a policy names as its `handler`, found and checked when the catalog is built."""

import inspect
from typing import cast

from signoff.contracts.errors import ConfigError
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.policy.handler_verdict import PolicyHandler
from signoff.registry.import_reference import load_reference
from signoff.registry.tool import Tool

_FIELD = "requires_approval.handler"


def policy_handler(tool: Tool) -> PolicyHandler | None:
    """The handler of the tool's policy, or None. Raises `ConfigError` for what cannot be found or cannot be asked."""
    policy = tool.requires_approval
    if not isinstance(policy, ApprovalPolicy) or policy.handler is None:
        return None
    try:
        found = load_reference(policy.handler)
    except ConfigError as error:
        raise _wrong(tool, policy.handler, error.message) from error
    if not callable(found):
        raise _wrong(tool, policy.handler, f"`{policy.handler}` is no function")
    try:
        # A ValueError is that of a built-in function which does not tell its signature.
        inspect.signature(found).bind(None, {})
    except (TypeError, ValueError):
        raise _wrong(tool, policy.handler, f"`{policy.handler}` does not take `(call, context)`") from None
    return cast(PolicyHandler, found)


def _wrong(tool: Tool, reference: str, why: str) -> ConfigError:
    message = f"`handler` of the policy of tool `{tool.name}`: {why}"
    return ConfigError(message, tool_name=tool.name, field=_FIELD, value=reference)
