"""Declares a tool that agents may call."""

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, Unpack, cast

import pydantic
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    SkipValidation,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs

from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.errors import RegistrationError
from signoff.contracts.limits import MAX_ATTEMPTS, MAX_PERMISSION_SECONDS
from signoff.contracts.names import COLLECT, READ_REST
from signoff.contracts.usage import UsageLimit
from signoff.formats.declared_fields import DEFINITION, IN_CODE, FieldSpec, Names, declared_fields
from signoff.formats.durations import Seconds, seconds
from signoff.formats.json_schema import CompiledSchema, compile_schema
from signoff.formats.read_only import read_only
from signoff.formats.record_section import Handed, Reference
from signoff.formats.secret_arguments import drop_covered, secret_paths
from signoff.policy.approval_policy import ApprovalPolicy, RequiresApproval
from signoff.policy.facts import ToolFacts
from signoff.policy.handler_verdict import PolicyHandler
from signoff.registry.capabilities import NO_CAPABILITIES, Capabilities
from signoff.registry.hooks import (
    AVAILABLE,
    CHECK_PERMISSIONS,
    HANDLER,
    PREVIEW,
    PROBE,
    VALIDATE_INPUT,
    Available,
    Handler,
    InputCheck,
    PermissionCheck,
    Previewer,
    Probe,
)
from signoff.registry.manifest.mappings import read_mapping
from signoff.registry.program.tool_keywords import (
    DEFAULT_FORM,
    BypassRouting,
    CardForm,
    Concurrency,
    Routing,
    RunBy,
    Scope,
    ToolKeywords,
    ToolOptionKeywords,
    Validation,
)
from signoff.registry.tool_fields import FieldProblem, by_own_names, field_problem
from signoff.registry.tool_result import Filter

DEFAULT_TIMEOUT: Final = 300.0
REPEATABLE_TRIES: Final = 3
UNDECLARED: Final = cast(Scope, "")
"""The scope of a function under a bare `@tool`. A registry rejects it, unless the manifest gives the scope."""

# Dataclasses give `<string>` as the file of their generated methods.
_OWN_FRAMES: Final = (__file__, dataclasses.__file__, "<string>")
_PYDANTIC: Final = str(Path(pydantic.__file__).parent)
_CONFIG: Final = ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True)


def _span(given: Any) -> Any:
    # The field checks numbers itself: in code a timeout may be longer than in a manifest.
    return seconds(given) if isinstance(given, str | timedelta) else given


def _usage_limit(given: Any) -> Any:
    return dataclasses.replace(given, period=_span(given.period)) if isinstance(given, UsageLimit) else given


_RECORDS: Final[Mapping[str, type[Any] | None]] = {
    "bypass_routing": BypassRouting, "usage_limit": UsageLimit, "capabilities": Capabilities, "requires_approval": None,
    "card": CardForm,
}  # fmt: skip
"""The fields that accept a record, or its keys as a mapping. `None`: a policy."""


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class ToolOptions:
    """The fields of a tool that its function does not give: the keywords of `@tool`.

    Each field is declared only here, see `declared_fields`.
    """

    if TYPE_CHECKING:

        def __init__(self, **fields: Unpack[ToolOptionKeywords]) -> None: ...

    name: Annotated[str, SkipValidation] = ""
    """`[A-Za-z0-9_-]{1,64}`, case-sensitive; not `respond`. With an `id`, it is the title."""
    description: Annotated[str, FieldSpec(unset="the docstring")] = ""
    """The model reads this text."""
    output_schema: Mapping[str, Any] | None = None
    """JSON Schema of the result; a misfit fails the call.

    [results.md](results.md#output-schemas).
    """
    # If given, part of the definition, see `declaration`: people answer by it.
    answer_schema: Annotated[Mapping[str, Any] | None, FieldSpec(hashed="no", shadow="same")] = None
    """JSON Schema of an answer that a person may give instead of a run.

    [approvals.md](approvals.md#answers-instead-of-a-run).
    """
    # The registry checks the order of B17, not this field.
    scope: Annotated[Scope, SkipValidation, FieldSpec(hashed="definition", unset="required")] = UNDECLARED
    """`generalist` or `specialist` (one actor's)."""
    routing: Annotated[Routing, SkipValidation, DEFINITION] = "routed"
    """`routed` or `bypass`."""
    bypass_routing: BypassRouting | None = None
    """`{reason: ...}` for `bypass`."""
    justification: str = ""
    """Why one actor has it; required for a specialist."""
    requires_approval: Annotated[
        RequiresApproval, FieldSpec(key=bool | dict[str, Any] | Handed, form="false, true or a policy")
    ] = False
    """`false`, `true`, or a [policy](policies.md)."""
    tags: Names = ()
    """Words for rules."""
    peer_exposed: bool = False
    """Other agents may call it (generalists only).

    [a2a.md](a2a.md).
    """
    title: Annotated[str, DEFINITION] = ""
    """A short name for people."""
    effect: Annotated[str, FieldSpec(hashed="definition", unset="tool and first arguments")] = ""
    """The card's sentence, with `{argument}` places."""
    # If not empty, part of the definition, see `declaration`: cards are drawn from it.
    card: Annotated[CardForm, FieldSpec(hashed="no", unset="as in the call")] = DEFAULT_FORM
    """`{first: [amount, to]}`: the arguments that every card shows first, at most 3.

    `{recipients: [to]}`: those with recipients; the inbox marks [new ones](approvals.md#decided-requests).
    """
    secrets: Annotated[Names, DEFINITION] = ()
    """Arguments masked everywhere, besides `writeOnly` ones."""
    # If not empty, part of the definition, see `declaration`: an answer given with another list compared other values.
    remarks: Annotated[Names, FieldSpec(hashed="no", shadow="same")] = ()
    """Arguments that only comment. Grants and the repeat guard ignore them.

    [approvals.md](approvals.md#remarks).
    """
    tell: Annotated[
        Mapping[str, Names],
        FieldSpec(
            key=dict[str, list[str]], form="events by `requester`, `user:<id>` or `role:<role>`", unset="no notice"
        ),
    ] = field(default_factory=dict)
    """`{requester: [decided, ran], role:audit: [waiting]}`: events sent to these people.

    [channels.md](channels.md#notices).
    """
    version: Annotated[str, DEFINITION] = "1"
    """A change makes earlier approvals stale."""
    read_only: Annotated[bool, DEFINITION] = False
    """No effects: runs again after a crash, without a ticket."""
    idempotent: Annotated[bool, DEFINITION] = False
    """May run again under the same key."""
    timeout: Annotated[
        float,
        BeforeValidator(_span),
        Field(gt=0, allow_inf_nan=False),
        FieldSpec(key=Seconds, form="above 0 seconds"),
    ] = DEFAULT_TIMEOUT
    """Time limit of one run."""
    max_result_chars: Annotated[
        int | None,
        Field(ge=1),
        FieldSpec(
            form="a whole number above 0, or none",
            aliases=("max_result_size_chars", "maxResultSizeChars"),
            unset="its share of the total",
        ),
    ] = None
    """Most characters of its result for the model."""
    task_queue: Annotated[str, FieldSpec(unset="the common queue")] = ""
    """Its worker's task queue."""
    concurrency: Concurrency = "safe"
    """`exclusive`: runs alone within the completion."""
    attempts: Annotated[
        int | None,
        Field(ge=1, le=MAX_ATTEMPTS),
        FieldSpec(form=f"a whole number from 1 to {MAX_ATTEMPTS}, or none", unset="3 for those, else 1"),
    ] = None
    """Attempts after failed connections, 1 to 10; several only if `read_only` or `idempotent`."""
    tenants: Annotated[
        Names | None, FieldSpec(form="a list of names, `[]` for nobody, or left out for all", unset="all")
    ] = None
    """Its tenants. For others it does not exist."""
    updates: Names = ()
    """Data and `context` fields that results may change.

    [Updates](results.md#updates).
    """
    hours: Annotated[
        Names,
        BeforeValidator(lambda given: (given,) if isinstance(given, str) else given),
        FieldSpec(
            key=str | list[str],
            form="a list of texts such as `Mo-Fr 08:00-18:00 Europe/Lisbon`",
            shadow="subset",
            unset="always",
        ),
    ] = ()
    """Its hours: `Mo-Fr 08:00-18:00 Europe/Lisbon`, or a list.

    [tools.md](tools.md#hours-and-limits).
    """
    # Another limit need not be a looser one, but limits by user, session and tenant cannot be ordered.
    usage_limit: Annotated[
        UsageLimit | None,
        BeforeValidator(_usage_limit),
        FieldSpec(form="`count`, `per` and `period`", unset="any number", shadow="same"),
    ] = None
    """`{count: 3, per: user, period: 1d}`; `per` is `user`, `session` or `tenant`.

    [tools.md](tools.md#hours-and-limits).
    """
    fallbacks: Names = ()
    """Tools to try after a failure; only if `read_only` or `idempotent`."""
    toolset: str = ""
    """A word for rules and actors' filters."""
    always_include: bool = False
    """Exempt from the actor's `toolset` alone."""
    strict: Annotated[bool | None, FieldSpec(form="true or false, or none", unset="as the provider does")] = None
    """The provider enforces the schema. Signoff always checks."""
    settings_schema: Mapping[str, Any] | None = None
    """JSON Schema of `settings`."""
    # If external, part of the definition, see `declaration`: approvers then rely on another system's promise.
    runs: Annotated[RunBy, FieldSpec(hashed="no", shadow="same")] = "signoff"
    """`external`: the proposing agent runs it under a permit. For external agents only, without `handler`.

    [external-calls.md](external-calls.md).
    """
    unreported: Literal["record", "ask"] = "record"
    """External call without a report: `record` the unknown outcome, or also `ask`."""
    # If not empty, part of the definition, see `declaration`: other settings change a call's effect.
    settings: Annotated[Mapping[str, Any], FieldSpec(hashed="no", unset="`{}`")] = field(default_factory=dict)
    """The handler's `context.settings`, without secrets."""
    metadata: Annotated[Mapping[str, Any], FieldSpec(unset="`{}`")] = field(default_factory=dict)
    """Your fields for rules and filters (`tool.metadata`), without secrets."""
    plugin: str = ""
    """Its plugin's name."""
    validation: Validation = "strict"
    """Arguments that fail the schema: `strict` refuses, `warn` runs (tools without a policy), `off` does not check
    (read-only tools without approval)."""
    capabilities: Annotated[Capabilities, FieldSpec(unset="none")] = NO_CAPABILITIES
    """`network`, `secrets`, `storage`, `process`, `fs_reach`, `attachments`.

    [tools.md](tools.md#capabilities).
    """
    untrusted_output: Annotated[bool, FieldSpec(aliases=("output_is_untrusted", "outputIsUntrusted"))] = False
    """Fences its results as untrusted text.

    [results.md](results.md#text-from-outside).
    """
    return_direct: bool = False
    """A successful call's value ends the turn.

    [results.md](results.md#results-that-end-the-turn).
    """
    filters: Annotated[
        Mapping[str, Filter], FieldSpec(key=dict[str, Reference], form="functions by destination", unset="`{}`")
    ] = field(default_factory=dict, repr=False, compare=False)
    """Filters of records, by destination.

    [distribution.md](distribution.md#filters).
    """
    available: Annotated[
        Available | None,
        AVAILABLE,
        FieldSpec(aliases=("is_available", "isAvailable"), unset="always", shadow="same"),
    ] = field(default=None, repr=False, compare=False)
    """`module:function`: is it available?

    [tools.md](tools.md#availability-and-permission).
    """
    check_permissions: Annotated[PermissionCheck | None, CHECK_PERMISSIONS, FieldSpec(unset="yes", shadow="same")] = (
        field(default=None, repr=False, compare=False)
    )
    """`module:function`: is this call permitted?

    [tools.md](tools.md#availability-and-permission).
    """
    cache_permission: Annotated[
        Seconds | None,
        Field(le=MAX_PERMISSION_SECONDS),
        FieldSpec(form=f"above 0 and at most {MAX_PERMISSION_SECONDS} seconds, or none", unset="never"),
    ] = None
    """How long an answer of `check_permissions` holds; at most `5m`.

    [tools.md](tools.md#cached-permissions).
    """
    preview: Annotated[Previewer | None, PREVIEW, FieldSpec(unset="none", shadow="same")] = field(
        default=None, repr=False, compare=False
    )
    """`module:function`: shows approvers the effect.

    [approvals.md](approvals.md#previews).
    """
    # If not empty, part of the definition, see `declaration`: approvers rely on the comparison.
    binds: Annotated[Names, FieldSpec(hashed="no", shadow="same")] = ()
    """Parts of the preview that must not change until the call runs.

    [approvals.md](approvals.md#previews).
    """
    probe: Annotated[Probe | None, PROBE] = field(default=None, repr=False, compare=False)
    """`module:function`: looks up an unknown outcome.

    [approvals.md](approvals.md#probes).
    """
    site: Annotated[str, FieldSpec(hashed="no", key=IN_CODE)] = field(default="", compare=False)
    """The place of its declaration, `file:line`; empty if unknown."""


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class Tool(ToolOptions):
    """A declared tool. Types are checked at declaration, everything else by a `ToolRegistry`.

    Raises `RegistrationError` for an unknown field or a wrong type.
    """

    if TYPE_CHECKING:

        def __init__(self, **fields: Unpack[ToolKeywords]) -> None: ...

    name: Annotated[str, SkipValidation, FieldSpec(hashed="definition", aliases=("id",), unset="the key")]
    description: Annotated[str, FieldSpec(unset="the docstring")]
    input_schema: Annotated[
        Mapping[str, Any], FieldSpec(hashed="definition", aliases=("parameters", "schema"), unset="the signature")
    ]
    """JSON Schema of the arguments. Every schema's `pattern` is RE2."""
    handler: Annotated[Handler, HANDLER, FieldSpec(hashed="no", aliases=("execute",), unset="required")]
    """`module:function` with typed parameters (`ToolContext`: the context) or `(args, context)`, or a `@tool`."""
    scope: Annotated[Scope, SkipValidation, FieldSpec(hashed="definition", unset="required")]
    validate_input: Annotated[InputCheck | None, VALIDATE_INPUT, FieldSpec(hashed="no")] = field(
        default=None, repr=False, compare=False
    )
    """`module:function`: a pure check after the schema, for a handler `(args, context)`.

    [tools.md](tools.md#your-own-check).
    """
    place: Annotated[str, FieldSpec(hashed="no", key=IN_CODE)] = ""
    """The actor, route or step that owns it. The catalog sets it, never the author."""

    policy_function: Annotated[PolicyHandler | None, SkipValidation, FieldSpec(hashed="no", key=IN_CODE)] = field(
        default=None, repr=False, compare=False
    )
    """The function of the policy that a program passes, instead of the one that `handler` names."""
    stricter_policy: Annotated[RequiresApproval, FieldSpec(hashed="no", key=IN_CODE)] = False
    """The manifest's policy over the code's. Both are evaluated, and the stricter verdict wins."""
    undeclared: Annotated[bool, FieldSpec(hashed="no", key=IN_CODE)] = False
    """Whether it represents the undeclared tools that an external agent calls."""

    def __post_init__(self) -> None:
        if not self.site:
            object.__setattr__(self, "site", _call_site())
        # Hashed, shown and checked values must not change under an approval, nor through a caller of the registry
        # .
        for schema in (
            *("input_schema", "output_schema", "answer_schema", "settings_schema"),
            *("settings", "metadata", "tell"),
        ):
            object.__setattr__(self, schema, self._read_only(schema))

    def _read_only(self, schema: str) -> Mapping[str, Any] | None:
        try:
            found: Mapping[str, Any] | None = read_only(getattr(self, schema))
        except RecursionError:
            raise refuse_tool(self.name, FieldProblem(schema, None, "has a schema that is nested too deeply")) from None
        return found

    @model_validator(mode="wrap")
    @classmethod
    def _explain_errors(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(data, ArgsKwargs):
            fields = by_own_names(cls, data.kwargs or {})
            if isinstance(fields, FieldProblem):
                raise refuse_tool(str((data.kwargs or {}).get("name", "")), fields, _call_site())
            data = ArgsKwargs(data.args, {**fields, **_read_mappings(fields)})
        try:
            return handler(data)
        except ValidationError as error:
            found = error.errors(include_url=False)
        # The misspelled name explains why the right one is missing.
        first = next((each for each in found if each["type"].startswith("unexpected")), found[0])
        given: Mapping[str, Any] = (data.kwargs or {}) if isinstance(data, ArgsKwargs) else {}
        raise refuse_tool(str(given.get("name", "")), field_problem(cls, first), str(given.get("site") or _call_site()))

    @cached_property
    def schema(self) -> CompiledSchema:
        """Compiled from its own copy. Raises `RegistrationError`."""
        return compile_schema(self.input_schema, tool_name=self.name)

    @cached_property
    def output(self) -> CompiledSchema | None:
        """Compiled from its own copy. Raises `RegistrationError`."""
        if self.output_schema is None:
            return None
        return compile_schema(self.output_schema, tool_name=self.name, field="output_schema", of_object=False)

    @cached_property
    def answer(self) -> CompiledSchema | None:
        """Compiled from its own copy. Raises `RegistrationError`."""
        if self.answer_schema is None:
            return None
        return compile_schema(self.answer_schema, tool_name=self.name, field="answer_schema", of_object=False)

    @cached_property
    def definition(self) -> str:
        """See `definition_hash`. Raises `RegistrationError` or `NotCanonical`."""
        return sha256_hex(self.declaration)

    @cached_property
    def declaration(self) -> dict[str, Any]:
        """The part under the definition hash. Cards are drawn from it, a question and its arguments."""
        # Only behaviour and inputs: with description or policy in it, fixing a typo would make waiting requests stale.
        values, fields = vars(self), declared_fields(type(self))
        card = {name: list(each) for name, each in vars(self.card).items() if each}
        return {
            **{name: values[name] for name, field in fields.items() if field.spec.hashed == "definition"},
            "input_schema": self.schema.schema,
            "secrets": self.secret_arguments,
            # An approval of a tool must not apply to another tool of the same name.
            **({"place": self.place} if self.place else {}),
            **({"settings": self.settings} if self.settings else {}),
            **({"runs": self.runs} if self.is_external else {}),
            **({"undeclared": True} if self.undeclared else {}),
            **({"remarks": sorted(self.remarks)} if self.remarks else {}),
            **({"binds": sorted(self.binds)} if self.binds else {}),
            **({"answer_schema": self.answer.schema} if self.answer is not None else {}),
            **({"card": card} if card else {}),
        }

    @property
    def is_external(self) -> bool:
        """Return whether the proposing agent runs the tool instead of Signoff."""
        return self.runs == "external"

    @property
    def of_framework(self) -> bool:
        """Whether it is the framework's own: no list, toolset, route or hook excludes it."""
        # By its name, which a catalog reserves.
        return self.name in (COLLECT, READ_REST)

    @property
    def activity(self) -> str:
        """The unique name within a catalog: its name, or `<name>@<actor>.<route>.<step>` for an actor's own.

        All undeclared tools of an actor share one, `*@<actor>`.
        """
        if self.undeclared:
            return f"*@{self.place}"
        return f"{self.name}@{self.place}" if self.place else self.name

    @property
    def for_peers(self) -> bool:
        """Return whether other agents may call the tool."""
        return self.peer_exposed and self.scope == "generalist" and not self.place

    @property
    def tries(self) -> int:
        """Return `attempts`, else 3 for a read-only or idempotent tool, else 1."""
        if self.attempts is not None:
            return self.attempts
        return REPEATABLE_TRIES if self.read_only or self.idempotent else 1

    @property
    def facts(self) -> ToolFacts:
        """Return the facts about the tool for rules and policies."""
        return ToolFacts(
            name=self.name,
            scope=self.scope,
            routing=self.routing,
            tags=self.tags,
            toolset=self.toolset,
            plugin=self.plugin,
            metadata=self.metadata,
        )

    @cached_property
    def secret_arguments(self) -> tuple[str, ...]:
        """The sorted dotted names in `secrets`, and of `writeOnly` arguments anywhere in the schema.

        Raises `RegistrationError` if `writeOnly` covers arguments without a name.
        """
        # If the schema is not enforced, a secret may be anywhere within its argument.
        paths = secret_paths(self.schema.schema, whole=self.validation != "strict")
        if () in paths:
            why = f"`input_schema` of tool `{self.name}` has `writeOnly` arguments without a name"
            why = f"{why}, which nothing can hide; name them in its `properties`"
            raise RegistrationError(why, tool_name=self.name, field="input_schema", value="writeOnly")
        found = drop_covered(paths | {(name,) for name in self.secrets})
        return tuple(sorted(".".join(path) for path in found))

    def without_remarks(self, args: Any) -> Any:
        """Return the arguments without `remarks`, to compare two calls."""
        if not self.remarks or not isinstance(args, Mapping):
            return args
        return {name: value for name, value in args.items() if name not in self.remarks}

    @property
    def masked_arguments(self) -> tuple[str, ...]:
        """The sorted dotted names of arguments that no page, log or summary may show: secret ones, and those that the
        policy masks.
        """
        policy = self.requires_approval
        masked = policy.show.secret if isinstance(policy, ApprovalPolicy) else ()
        return tuple(sorted({*self.secret_arguments, *masked}))


def _read_mappings(fields: Mapping[str, Any]) -> dict[str, Any]:
    name = str(fields.get("name", ""))
    read: dict[str, Any] = {}
    for key, record in _RECORDS.items():
        given = fields.get(key)
        if isinstance(given, Mapping) or (record is None and callable(given)):
            read |= read_mapping(name, key, given, record, str(fields.get("site") or _call_site()))
    return read


def refuse_tool(name: str, flaw: FieldProblem, site: str = "") -> RegistrationError:
    """The error has `tool_name`, `field`, `value` and `site`, its `file:line`, for a duplicate also `first_site`."""
    message = f"{f'tool `{name}`' if name else 'a tool'} {flaw.why}{declared_at(site)}"
    both = {"first_site": flaw.first_site} if flaw.first_site else {}
    return RegistrationError(message, tool_name=name, field=flaw.field, value=flaw.value, site=site, **both)


def declared_at(site: str) -> str:
    """Return the end of a message with the place of a declaration, or ""."""
    return f" (declared at {site})" if site else ""


def _call_site() -> str:
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_own(frame.f_code.co_filename):
        frame = frame.f_back
    name = frame.f_code.co_filename
    return "" if _is_own(name) else f"{name}:{frame.f_lineno}"


def _is_own(file: str) -> bool:
    return file in _OWN_FRAMES or file.startswith(_PYDANTIC)
