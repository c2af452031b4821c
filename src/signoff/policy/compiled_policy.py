"""Compiles policies at registration and judges calls by them.

The order is deny > ask > auto. A call skips approval only on an exact `true` of both engines. Everything else errs on
the safe side: an error of `deny_if` or of a `hide` rule denies or hides.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from signoff.contracts.approval import AppliedTerm
from signoff.contracts.call import REQUIRES_APPROVAL, RuleReference
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.content import Remark, Words
from signoff.contracts.errors import ConfigError
from signoff.formats.bounds import bounds_problem
from signoff.languages.remarks import english
from signoff.policy.answer import EngineAnswer, EngineOutcome
from signoff.policy.approval_policy import APPROVER, ApprovalPolicy, GlobalRule, RequiresApproval
from signoff.policy.context_shapes import ACTOR, TOOL, context_shape, judged_shape
from signoff.policy.expression import EVALUATORS, Compiler, EngineInput, Expression, check_timeless, facts
from signoff.policy.facts import ToolFacts
from signoff.policy.schema_shapes import ANY, DataShape, pin_numbers, read_schema
from signoff.policy.terms import NO_TERMS, VerdictTerms, terms_of

Effect = Literal["none", "hide", "deny", "require_approval"]

_DEFAULTS: Final = ApprovalPolicy()
_STRICTEST: Final = ("hide", "deny", "require_approval")
# `route_to` may build its list from arguments written by a model, and all of it is stored in the request.
_MAX_ROUTED: Final = 100


@dataclass(frozen=True)
class PolicyVerdict:
    """The verdict of a policy on one call, and its reasons.

    `rule` is the deciding rule (`requires_approval` if no expression decided), `rule_text` its expression. For `auto`,
    `terms` apply if another gate asks. `level` is `admin` if the policy's handler returns that.
    """

    verdict: Literal["auto", "ask", "deny"]
    rule: RuleReference
    rule_text: str
    reasons: tuple[Words, ...]
    policy_hash: str
    evaluators: str
    engines: tuple[EngineAnswer, ...] = ()
    terms: VerdictTerms = NO_TERMS
    level: Literal["user", "admin"] = "user"

    @property
    def why(self) -> str:
        return english(self.reasons)


@dataclass(frozen=True)
class RulesVerdict:
    """The strictest global rule that applies: hide > deny > require_approval > none."""

    effect: Effect
    rule: GlobalRule | None
    why: str
    engines: tuple[EngineAnswer, ...] = ()


@dataclass(frozen=True)
class CompiledPolicy:
    """A tool's policy, ready to judge from any thread.

    `findings` lists parts that could not be checked.
    """

    policy: ApprovalPolicy | None
    needs_person: Literal["never", "maybe", "always"]
    hash: str
    evaluators: str
    findings: tuple[str, ...]
    tool: ToolFacts
    args_shape: DataShape
    context_shape: DataShape
    expressions: Mapping[str, Expression]
    default: tuple[str, ...]
    """The approvers if the policy names none."""

    def judge(
        self, args: Mapping[str, Any], ctx: Mapping[str, Any], actor: Mapping[str, Any] | None = None
    ) -> PolicyVerdict:
        """Judge one call with validated `args` in the pinned context `ctx`. Never raises.

        `actor` is the proposing actor's `name` and `tags`. Without it, every rule that reads it fails.
        """
        if self.policy is None:
            never = self.needs_person == "never"
            asked = terms_of(self.rules, self.default)
            return self._verdict("auto" if never else "ask", (_NEVER if never else _ALWAYS,), terms=asked)
        data, problem = self._facts(args, ctx, actor)
        engines: tuple[EngineAnswer, ...] = ()
        for rule, passes, passed, otherwise in _ORDER:
            expression = self.expressions.get(rule)
            if expression is None:
                continue
            # Unreadable data fail every rule: `deny_if` denies, and nothing becomes `auto`.
            pair = expression.ask(data) if data is not None else _unread(expression, problem)
            engines += pair
            # Only one agreed answer passes. An error, a disagreement or a non-boolean gives `otherwise`.
            held = all(answer.kind == passes for answer in pair)
            if held and passed is None:
                continue
            verdict = passed if held and passed is not None else otherwise
            why = _rule_remark(rule, pair, _MEANING[verdict])
            if verdict == "ask":
                return self._ask(why, expression, engines, data)
            # Compute them even for `auto`: if a global rule or a later gate asks, it must ask the same approvers.
            if verdict == "auto":
                approvers, _, routed = self._route(data)
                terms, term_answers = self._terms(data, approvers)
                return self._verdict(verdict, (why,), expression, engines + routed + term_answers, terms)
            return self._verdict(verdict, (why,), expression, engines)
        # The absence of a rule that forbids a call or requires approval is no permission to skip approval.
        return self._ask(Remark.of("no_rule"), None, engines, data)

    @property
    def rules(self) -> ApprovalPolicy:
        """The defaults if the tool has no policy."""
        return self.policy or _DEFAULTS

    @property
    def reads_now(self) -> bool:
        return any(expression.reads_now for expression in self.expressions.values())

    @property
    def handler_alone(self) -> bool:
        """Whether the handler is the only rule. Then it decides instead of only tightening."""
        return _handler_alone(self.policy, self.expressions)

    def _facts(
        self, args: Mapping[str, Any], ctx: Mapping[str, Any], actor: Mapping[str, Any] | None
    ) -> tuple[EngineInput | None, str]:
        try:
            problem = bounds_problem(args) or bounds_problem(ctx) or bounds_problem(actor or {})
            if problem:
                return None, problem
            pinned = {
                "args": pin_numbers(args, self.args_shape),
                "ctx": pin_numbers(ctx, self.context_shape),
                "tool": self.tool.as_cel(),
                "actor": dict(actor or {}),
            }
            return facts(pinned), ""
        except Exception as error:
            return None, f"the data cannot be read ({type(error).__name__})"

    def _ask(
        self,
        why: Words,
        expression: Expression | None = None,
        engines: tuple[EngineAnswer, ...] = (),
        data: EngineInput | None = None,
    ) -> PolicyVerdict:
        approvers, note, routed = self._route(data)
        terms, term_answers = self._terms(data, approvers)
        return self._verdict("ask", (why, *note), expression, engines + routed + term_answers, terms)

    def _terms(
        self, data: EngineInput | None, approvers: tuple[str, ...]
    ) -> tuple[VerdictTerms, tuple[EngineAnswer, ...]]:
        policy = self.rules
        applied: list[AppliedTerm] = []
        engines: tuple[EngineAnswer, ...] = ()
        for number, rule in enumerate(policy.terms):
            expression = self.expressions[_term_rule(number)]
            pair = expression.ask(data) if data is not None else _unread(expression, "the data cannot be read")
            engines += pair
            # Only an agreed false excludes a term: an error or a disagreement requires more, never less.
            if any(answer.kind != "false" for answer in pair):
                applied.append(rule.as_applied(expression.text))
        return terms_of(policy, approvers, applied), engines

    def _route(self, data: EngineInput | None) -> tuple[tuple[str, ...], tuple[str, ...], tuple[EngineAnswer, ...]]:
        """Return the approvers to ask, more reasons, and the engines' answers."""
        named = (self.policy.named_approvers if self.policy is not None else ()) or self.default
        expression = self.expressions.get("route_to")
        if expression is None:
            return named, (), ()
        if data is None:
            return named, ("`route_to` could not be evaluated, so the named approvers are asked",), ()
        first, second = expression.outcomes(data)
        people = _people(first)
        routed = expression.answers_from_outcomes(first, second)
        # One engine alone must not choose the approvers, and a request without approvers could never be decided.
        if people and people == _people(second):
            return people, (), routed
        return (
            named,
            ("`route_to` gave no list of people that both engines agree on, so the named approvers are asked",),
            routed,
        )

    def _verdict(
        self,
        verdict: Literal["auto", "ask", "deny"],
        reasons: tuple[Words, ...],
        expression: Expression | None = None,
        engines: tuple[EngineAnswer, ...] = (),
        terms: VerdictTerms = NO_TERMS,
    ) -> PolicyVerdict:
        rule = RuleReference(name=expression.rule) if expression is not None else REQUIRES_APPROVAL
        text = expression.text if expression is not None else ""
        return PolicyVerdict(verdict, rule, text, reasons, self.hash, self.evaluators, engines, terms)


ANY_ARGUMENTS: Final = DataShape("map", items=ANY)
"""The arguments of any tool, for rules over all tools.

Their names are known only with a call.
"""


@dataclass(frozen=True)
class CallArguments:
    """A call's arguments, and the shape for reading their numbers."""

    args: Mapping[str, Any]
    shape: DataShape


@dataclass(frozen=True)
class CompiledRules:
    """Global rules, ready to judge from any thread."""

    rules: tuple[tuple[GlobalRule, Expression], ...]
    hash: str
    evaluators: str
    findings: tuple[str, ...]
    context_shape: DataShape

    @property
    def read_context(self) -> bool:
        """If no rule reads `ctx`, an answer for an actor and tool holds in all turns."""
        # A variable can be read only by its name. Finding the name in a text or a comment does no harm here.
        return any("ctx" in expression.text for _, expression in self.rules)

    @property
    def reads_now(self) -> bool:
        return any(expression.reads_now for _, expression in self.rules)

    def judge(
        self, *, actor: Mapping[str, Any], tool: ToolFacts, ctx: Mapping[str, Any], call: "CallArguments | None" = None
    ) -> RulesVerdict:
        """Return the strictest rule that applies. Never raises. `actor` has `name` and `tags`.

        `call` contains the arguments, for rules compiled to see them.
        """
        if not self.rules:
            return RulesVerdict("none", None, "there are no global rules")
        data, problem = self._facts(actor, tool, ctx, call)
        engines: tuple[EngineAnswer, ...] = ()
        for rule, expression in self.rules:
            pair = expression.ask(data) if data is not None else _unread(expression, problem)
            engines += pair
            # An error or a disagreement also applies the rule: hide, deny and ask all err on the safe side.
            if any(answer.kind != "false" for answer in pair):
                why = f"rule `{rule.name}` {_describe_reading(pair)}" + (f": {rule.reason}" if rule.reason else "")
                return RulesVerdict(rule.effect, rule, why, engines)
        return RulesVerdict("none", None, "no global rule applies", engines)

    def _facts(
        self, actor: Mapping[str, Any], tool: ToolFacts, ctx: Mapping[str, Any], call: "CallArguments | None"
    ) -> tuple[EngineInput | None, str]:
        try:
            args = {} if call is None else {"args": pin_numbers(call.args, call.shape)}
            problem = bounds_problem(actor) or bounds_problem(ctx) or bounds_problem(args)
            if problem:
                return None, problem
            pinned = {"actor": dict(actor), "tool": tool.as_cel(), "ctx": pin_numbers(ctx, self.context_shape)}
            return facts(pinned | args), ""
        except Exception as error:
            return None, f"the data cannot be read ({type(error).__name__})"


# The rule, the agreed answer that passes, the verdict then (None: the next rule), and the verdict otherwise.
_ORDER: Final[tuple[tuple[str, str, Literal["auto"] | None, Literal["ask", "deny"]], ...]] = (
    ("deny_if", "false", None, "deny"),
    ("require_approval_if", "false", None, "ask"),
    ("auto_approve_if", "true", "auto", "ask"),
)
_NEVER: Final = Remark.of("never")
_ALWAYS: Final = Remark.of("always")
_MEANING: Final = {"auto": Remark.of("auto"), "ask": Remark.of("ask"), "deny": Remark.of("deny")}


def compile_policy(
    requires_approval: RequiresApproval,
    *,
    tool: ToolFacts,
    input_schema: Mapping[str, Any],
    context_schema: Mapping[str, Any] | None = None,
    default: Sequence[str] = (),
) -> CompiledPolicy:
    """Compile a tool's policy against the JSON Schema of its arguments and the context.

    `context_schema` maps dotted paths below `ctx` to JSON Schema. `default` are the approvers if the policy names none.
    Raises `ConfigError` with `tool_name`, `field`, `value` and, if known, `column`.
    """
    args, ctx = read_schema(input_schema), judged_shape(context_shape(context_schema))
    policy = requires_approval if isinstance(requires_approval, ApprovalPolicy) else None
    expressions: dict[str, Expression] = {}
    if policy is not None:
        _check_show(policy, tool.name, args)
        expressions = _expressions(policy, tool, args, ctx)
    return CompiledPolicy(
        policy=policy,
        # Without `auto_approve_if`, only a handler that decides alone can let a call pass without approval.
        needs_person="never"
        if requires_approval is False
        else "maybe"
        if "auto_approve_if" in expressions or _handler_alone(policy, expressions)
        else "always",
        hash=sha256_hex({"requires_approval": _normal_form(requires_approval, expressions)}),
        evaluators=EVALUATORS,
        findings=tuple(finding for each in expressions.values() for finding in each.findings),
        tool=tool,
        args_shape=args,
        context_shape=ctx,
        expressions=expressions,
        default=tuple(default),
    )


def compile_rules(
    rules: Sequence[GlobalRule], context_schema: Mapping[str, Any] | None = None, *, with_args: bool = False
) -> CompiledRules:
    """Compile the manifest's global rules.

    With `with_args`, they see `args` of any tool, untyped.

    Raises `ConfigError` with `field` (the rule's name) and `value`.
    """
    ctx = judged_shape(context_shape(context_schema))
    names = [rule.name for rule in rules]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"two global rules have the name `{twice}`; give each rule a different name", field=twice)
    args = {"args": ANY_ARGUMENTS} if with_args else {}
    compiler = Compiler({"tool": TOOL, "actor": ACTOR, "ctx": ctx, **args}, "global rules")
    # Strictest first, so that the first rule that applies decides. The sort is stable: equal rules keep the manifest's
    # order.
    ordered = sorted(rules, key=lambda rule: _STRICTEST.index(rule.effect))
    compiled = tuple((rule, compiler.compile(rule.name, rule.rule)) for rule in ordered)
    for rule, expression in compiled:
        if rule.effect == "hide":
            check_timeless(expression, "global rules")
    normal = [{**rule.model_dump(mode="json"), "rule": expression.text} for rule, expression in compiled]
    return CompiledRules(
        rules=compiled,
        hash=sha256_hex({"policies": normal}),
        evaluators=EVALUATORS,
        findings=tuple(finding for _, expression in compiled for finding in expression.findings),
        context_shape=ctx,
    )


def _expressions(policy: ApprovalPolicy, tool: ToolFacts, args: DataShape, ctx: DataShape) -> dict[str, Expression]:
    compiler = Compiler({"args": args, "ctx": ctx, "tool": TOOL, "actor": ACTOR}, f"tool `{tool.name}`", tool.name)
    sources = {
        "deny_if": policy.deny_if,
        "require_approval_if": policy.require_approval_if,
        "auto_approve_if": policy.auto_approve_if,
        "route_to": policy.route_to,
        **{_term_rule(number): term.when for number, term in enumerate(policy.terms)},
    }
    return {
        rule: compiler.compile(rule, source, gives="LIST" if rule == "route_to" else "BOOL")
        for rule, source in sources.items()
        if source is not None
    }


def _normal_form(requires_approval: RequiresApproval, expressions: Mapping[str, Expression]) -> Any:
    if isinstance(requires_approval, bool):
        return requires_approval
    # Leave out defaults, so that a new field changes no hash: a grant is valid for one policy hash only.
    data = requires_approval.model_dump(mode="json", exclude_defaults=True)
    for number, term in enumerate(data.get("terms", ())):
        term["when"] = expressions[_term_rule(number)].text
    return {**data, **{rule: each.text for rule, each in expressions.items() if rule in data}}


def _term_rule(number: int) -> str:
    return f"terms.{number}.when"


def _handler_alone(policy: ApprovalPolicy | None, expressions: Mapping[str, Expression]) -> bool:
    if policy is None or policy.handler is None:
        return False
    return not any(rule in expressions for rule, *_ in _ORDER)


def _check_show(policy: ApprovalPolicy, tool_name: str, args: DataShape) -> None:
    # A schema with arbitrary names, or an unreadable one, does not list its arguments.
    if args.kind != "object":
        return
    for field, names in (("show.only", policy.show.only or ()), ("show.secret", policy.show.secret)):
        for name in names:
            if name not in args.fields:
                known = ", ".join(f"`{each}`" for each in sorted(args.fields))
                raise ConfigError(
                    f"tool `{tool_name}`: `{field}` names `{name}`, which is no argument; there are {known or 'none'}",
                    tool_name=tool_name,
                    field=field,
                    value=name,
                )


def _unread(expression: Expression, problem: str) -> tuple[EngineAnswer, EngineAnswer]:
    outcome = EngineOutcome("error", problem)
    return expression.answers_from_outcomes(outcome, outcome)


def _describe_reading(pair: Iterable[EngineAnswer]) -> str:
    answers = tuple(pair)
    kinds = {answer.kind for answer in answers}
    if kinds == {"true"} or kinds == {"false"}:
        return f"is {answers[0].kind}"
    if (failed := _failure(answers)) is not None:
        return f"could not be evaluated ({failed})"
    return "did not return true or false" if "other" in kinds else "got different answers from the two engines"


def _rule_remark(rule: str, pair: Iterable[EngineAnswer], what: Remark) -> Remark:
    answers = tuple(pair)
    kinds = {answer.kind for answer in answers}
    if kinds == {"true"} or kinds == {"false"}:
        return Remark.of("verdict", rule=rule, answer=answers[0].kind, detail=what)
    if (failed := _failure(answers)) is not None:
        return Remark.of("verdict.error", rule=rule, why=failed, detail=what)
    if "other" in kinds:
        return Remark.of("verdict.other", rule=rule, detail=what)
    return Remark.of("verdict.differs", rule=rule, detail=what)


def _failure(answers: Iterable[EngineAnswer]) -> str | None:
    note = next((answer.note for answer in answers if answer.kind == "error"), None)
    return None if note is None else f"{note[:1].lower()}{note[1:]}"


def _people(outcome: EngineOutcome) -> tuple[str, ...]:
    """Return distinct approvers, or () if the result of `route_to` is no valid list."""
    value = outcome.value
    if outcome.kind != "other" or not isinstance(value, list) or len(value) > _MAX_ROUTED:
        return ()
    # Reject the whole list: without the invalid entries, the rest may not be the approvers that the author meant.
    if not all(isinstance(item, str) and APPROVER.match(item) for item in value):
        return ()
    return tuple(dict.fromkeys(str(item) for item in value))
