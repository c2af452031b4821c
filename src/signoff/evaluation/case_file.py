"""Reads and writes evaluation cases in YAML."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from pydantic import Field

from signoff.contracts.approval import Terms
from signoff.contracts.call import CallContext, RuleReference
from signoff.contracts.errors import ConfigError
from signoff.contracts.ids import TurnKey, parse_workflow_id
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Principal
from signoff.formats.yaml_file import YamlFile, read_yaml
from signoff.formats.yaml_section import Section, read_section
from signoff.formats.yaml_writer import write_yaml

ForbiddableKind: TypeAlias = Literal["new", "missing", "changed", "verdict", "terms", "ending"]
DifferenceKind: TypeAlias = Literal[ForbiddableKind, "prompt"]
"""The case's `prompt_hash_mismatch` grades a difference of kind `prompt`, and its `forbid` all others."""
HashMismatch: TypeAlias = Literal["warn", "error", "ignore"]


class RecordedDecision(Section):
    """The approvers' decision on one call, or its timeout."""

    verdict: Literal["approved", "denied", "answered", "timed_out", "cancelled"] = Field(
        description="How the request ended."
    )
    by: str = Field("", description="The deciding person.")
    reason: str = Field("", description="The reason given.")


class RecordedResult(Section):
    """The answer to one call, as the model read it."""

    code: str = Field(description="The code of its outcome.")
    value: Any = Field("", description="The value.")
    note: str = Field("", description="A note for the model before the value.")


class RecordedCall(Section):
    """One proposed call and its outcome."""

    call: str = Field(description="Its id, such as `c1.1`.")
    tool: str = Field(description="The tool's name.")
    args: dict[str, Any] = Field({}, description="The arguments as proposed, secret ones hidden.")
    malformed: str = Field("", description="Why the arguments were none.")
    surplus: bool = Field(False, description="Whether it was one call too many.")
    verdict: str = Field("", description="`run`, `ask`, `deny`, or the code with which a gate ended it.")
    gate: str = Field("", description="The gate that ended it.")
    rule: RuleReference | None = Field(None, description="The rule that let it run, asked or denied.")
    terms: Terms | None = Field(None, description="The terms on which approvers were asked.")
    decision: RecordedDecision | None = Field(None, description="The approvers' decision.")
    result: RecordedResult | None = Field(None, description="The answer to the model.")

    @property
    def ran(self) -> bool:
        """Whether the result is the tool's own answer."""
        if self.result is None:
            return False
        return self.verdict == "run" or (self.decision is not None and self.decision.verdict == "approved")


class RecordedCompletion(Section):
    """One completion of the model."""

    at: str = Field(description="When its calls were judged.")
    text: str = Field("", description="The model's text.")
    calls: list[RecordedCall] = Field([], description="The calls that it proposed.")
    withheld: list[str] = Field([], description="Tools withheld from the model.")
    context: dict[str, Any] | None = Field(None, description="The context from here on, where tools changed it.")
    step: str | None = Field(None, description="The step from here on, where the conversation moved.")

    @property
    def judged_at(self) -> datetime:
        return datetime.fromisoformat(self.at)


class RecordedMessage(Section):
    """One message of the conversation before the turn."""

    role: Literal["user", "assistant"] = Field(description="The author's role.")
    text: str = Field("", description="Its text.")
    calls: list[RecordedCall] = Field([], description="The proposed calls with their answers.")


class RecordedTurn(Section):
    """The source of a case."""

    turn: str = Field(description="Its workflow id.")
    catalog: str = Field("", description="The first 16 digits of the hash of its catalog.")
    instructions: str = Field("", description="The first 16 digits of the hash of its actor's instructions.")


class Asker(Section):
    """The requester of a turn, as rules see them."""

    user: str = Field(description="The person's id.")
    name: str = Field("", description="The person's name.")
    tier: str = Field("standard", description="The person's tier.")
    roles: list[str] = Field([], description="The person's roles.")
    locale: str = Field("en", description="The person's language.")


class EvaluationCase(Section):
    """A finished turn for replay, and the differences that count as errors."""

    keys_in_help: ClassVar[bool] = False
    name: str = Field(description="A sentence.")
    recorded: RecordedTurn = Field(description="The turn that it was made of.")
    prompt_hash_mismatch: HashMismatch = Field(
        "warn", description="The severity of other instructions than the turn's."
    )
    forbid: list[ForbiddableKind] = Field(
        list(get_args(ForbiddableKind)), description="The differences that are an error."
    )
    actor: str = Field(description="The actor.")
    tenant: str = Field(DEFAULT_TENANT, description="The tenant.")
    channel: str = Field("", description="The channel of the request.")
    route: str = Field("", description="The route.")
    step: str = Field("", description="The step.")
    transient: list[str] = Field([], description="Tools that the turn alone had.")
    dry_run: bool = Field(False, description="Whether tools were only simulated.")
    user: Asker = Field(description="The requester.")
    context: dict[str, Any] = Field({}, description="The context at the beginning.")
    messages: list[RecordedMessage] = Field(description="The conversation at the beginning.")
    completions: list[RecordedCompletion] = Field(description="The model's completions, in order.")
    ending: str = Field(description="The state in which the turn ended.")
    answer: str = Field("", description="The text of its answer.")

    def ctx(self, completion: int) -> CallContext:
        """Return the context for judging the calls of a completion. `completion` counts from 1."""
        changes = [each.context for each in self.completions[:completion] if each.context is not None]
        steps = [each.step for each in self.completions[:completion] if each.step is not None]
        key = parse_workflow_id(self.recorded.turn) or TurnKey(self.tenant, "", "")
        return CallContext(
            actor=self.actor,
            session=key.session,
            turn=key.turn,
            tenant=self.tenant,
            channel=self.channel,
            route=self.route,
            step=steps[-1] if steps else self.step,
            user=Principal(**{**self.user.model_dump(), "roles": tuple(self.user.roles)}),
            extra=changes[-1] if changes else self.context,
            transient=tuple(self.transient),
        )


@dataclass(frozen=True)
class PlacedCase:
    """A case and its place, `file:line`."""

    where: str
    case: EvaluationCase


def read_cases(path: Path) -> tuple[list[PlacedCase], list[str]]:
    """Return the valid cases, and a sentence for each invalid one. Raises `ConfigError` for a file without a list."""
    # Messages and results may contain `${...}`, which has no meaning here.
    file = read_yaml(path, quotes=True)
    if not isinstance(file.data, list) or not file.data:
        raise ConfigError(f"{path}: cases are a list, as `signoff eval record` writes them", file=str(path))
    found: list[PlacedCase] = []
    problems: list[str] = []
    for index, data in enumerate(file.data):
        try:
            found.append(_read_case(file, index, data))
        except ConfigError as error:
            problems.append(error.message)
    return found, problems


def write_cases(cases: Iterable[EvaluationCase]) -> str:
    """Leave out fields at their defaults, except `forbid`."""
    data = [{**_plain(case), "forbid": case.forbid} for case in cases]
    ordered = [{name: each[name] for name in EvaluationCase.model_fields if name in each} for each in data]
    return write_yaml(ordered)


def _read_case(file: YamlFile, index: int, data: Any) -> PlacedCase:
    case = read_section(file, (index,), EvaluationCase, data, f"case {index + 1}")
    if not case.completions:
        raise file.error((index, "completions"), f"case {index + 1} has no completion to play")
    for number, completion in enumerate(case.completions):
        try:
            has_zone = completion.judged_at.tzinfo is not None
        except ValueError:
            has_zone = False
        if not has_zone:
            place = (index, "completions", number, "at")
            raise file.error(place, "`at` must be a time with its zone, such as `2026-11-21T10:00:00+00:00`")
    name, line = file.where((index,))
    return PlacedCase(f"{name}:{line}", case)


def _plain(case: EvaluationCase) -> dict[str, Any]:
    return case.model_dump(mode="json", by_alias=False, exclude_defaults=True)
