"""The keywords of tool declarations in code, for type checkers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, TypeAlias, TypedDict

from pydantic import Field

from signoff.contracts.usage import UsageLimit
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.policy.handler_verdict import PolicyHandler
from signoff.registry.capabilities import Capabilities
from signoff.registry.hooks import Available, Handler, InputCheck, PermissionCheck, Previewer, Probe
from signoff.registry.results.reducers import Reducer
from signoff.registry.tool_result import Filter

Scope: TypeAlias = Literal["generalist", "specialist"]
Routing: TypeAlias = Literal["routed", "bypass"]
Concurrency: TypeAlias = Literal["safe", "exclusive"]
Validation: TypeAlias = Literal["strict", "warn", "off"]
RunBy: TypeAlias = Literal["signoff", "external"]
Span: TypeAlias = float | str | timedelta
"""A duration: seconds, a text such as `30s`, or a `timedelta`."""


@dataclass(frozen=True)
class BypassRouting:
    """The reason why a specialist tool needs no routing."""

    reason: Annotated[str, Field(description="A real one.")]


@dataclass(frozen=True)
class CardForm:
    """The form of a tool's card."""

    first: Annotated[tuple[str, ...], Field(description="The most important arguments: they come first.")] = ()
    recipients: Annotated[
        tuple[str, ...], Field(description="The arguments with recipients, such as accounts: cards mark new ones.")
    ] = ()


DEFAULT_FORM: Final = CardForm()


class CommonToolFields(TypedDict, total=False):
    """The keywords that `@app.tool`, `@tool` and `Tool` share."""

    name: str
    description: str
    title: str
    effect: str
    card: CardForm | Mapping[str, Any]
    tags: Sequence[str]
    requires_approval: bool | ApprovalPolicy | Mapping[str, Any] | PolicyHandler
    secrets: Sequence[str]
    remarks: Sequence[str]
    tell: Mapping[str, Sequence[str]]
    read_only: bool
    idempotent: bool
    timeout: Span
    attempts: int | None
    hours: str | Sequence[str]
    usage_limit: UsageLimit | Mapping[str, Any] | None
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    answer_schema: Mapping[str, Any] | None
    routing: Routing
    bypass_routing: BypassRouting | Mapping[str, str] | None
    justification: str
    peer_exposed: bool
    version: str
    max_result_chars: int | None
    task_queue: str
    concurrency: Concurrency
    tenants: Sequence[str]
    updates: Sequence[str]
    fallbacks: Sequence[str]
    toolset: str
    always_include: bool
    strict: bool | None
    settings: Mapping[str, Any]
    settings_schema: Mapping[str, Any] | None
    runs: RunBy
    unreported: Literal["record", "ask"]
    metadata: Mapping[str, Any]
    plugin: str
    validation: Validation
    capabilities: Capabilities | Mapping[str, Any]
    untrusted_output: bool
    return_direct: bool
    filters: Mapping[str, str | Filter]
    available: Available | None
    check_permissions: PermissionCheck | None
    cache_permission: Span | None
    preview: Previewer | None
    binds: Sequence[str]
    probe: Probe | None


class ToolFields(CommonToolFields, total=False):
    """The keywords of `@app.tool`: fields of `Tool`, and short forms of a policy."""

    auto_approve_if: str
    deny_if: str
    approvers: Sequence[str | Mapping[str, Any]]
    validate_input: InputCheck | None
    reducer: str | Reducer


class ToolOptionKeywords(CommonToolFields, total=False):
    """Like `@app.tool`, for `@tool`: only fields, also in camelCase."""

    scope: Scope
    site: str
    id: str
    outputSchema: Mapping[str, Any] | None
    answerSchema: Mapping[str, Any] | None
    bypassRouting: BypassRouting | Mapping[str, str] | None
    requiresApproval: bool | ApprovalPolicy | Mapping[str, Any] | PolicyHandler
    peerExposed: bool
    readOnly: bool
    maxResultChars: int | None
    max_result_size_chars: int | None
    maxResultSizeChars: int | None
    taskQueue: str
    usageLimit: UsageLimit | Mapping[str, Any] | None
    alwaysInclude: bool
    settingsSchema: Mapping[str, Any] | None
    untrustedOutput: bool
    output_is_untrusted: bool
    outputIsUntrusted: bool
    returnDirect: bool
    is_available: Available | None
    isAvailable: Available | None
    checkPermissions: PermissionCheck | None
    cachePermission: Span | None
    inputSchema: Mapping[str, Any]
    parameters: Mapping[str, Any]
    schema: Mapping[str, Any]


class ToolKeywords(ToolOptionKeywords, total=False):
    """The keywords of `Tool`."""

    handler: Handler
    execute: Handler
    validate_input: InputCheck | None
    validateInput: InputCheck | None
    place: str
    policy_function: PolicyHandler | None
    stricter_policy: bool | ApprovalPolicy
    undeclared: bool
