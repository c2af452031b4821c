"""The journals of a run: the workload's messages, the nemesis' kills, and the effects."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

Verdict = Literal["approved", "denied", "happened"]
Way = Literal["turn", "external"]
WORKLOAD, NEMESIS, EFFECTS, RECORD = "workload.jsonl", "nemesis.jsonl", "effects.jsonl", "record.jsonl"


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    at: float = Field(default_factory=time.time)
    """Seconds since 1970."""


class Planned(_Entry):
    """The run: its seed and length."""

    kind: Literal["planned"] = "planned"
    seed: int
    seconds: float
    store: str


class Proposed(_Entry):
    """A call before the workload proposes it."""

    kind: Literal["proposed"] = "proposed"
    call: str
    way: Way
    tool: str
    args: dict[str, Any]
    """The effective arguments, after an edit."""
    by_rule: bool = False
    """Whether a rule allows it without an approver."""
    voters: int = 1
    """The number of required approvals."""


class Accepted(_Entry):
    """The id that the gateway gave a call. The ids of the call's requests begin with it."""

    kind: Literal["accepted"] = "accepted"
    call: str
    id: str


class Answering(_Entry):
    """An answer before the approver sends it."""

    kind: Literal["answering"] = "answering"
    call: str
    """The call that the shown card names."""
    approval: str
    revision: int
    question: Literal["approval", "in_doubt"]
    person: str
    verdict: Verdict


class Answered(_Entry):
    """The receipt of an answer."""

    kind: Literal["answered"] = "answered"
    approval: str
    revision: int
    person: str
    verdict: Verdict
    status: str
    code: str = ""


class Used(_Entry):
    """A permit that the gateway gave to one attempt of the agent, which then acts."""

    kind: Literal["used"] = "used"
    call: str
    attempt: str
    args: dict[str, Any]


class Reported(_Entry):
    """An outcome that the gateway accepted from the agent."""

    kind: Literal["reported"] = "reported"
    call: str
    code: str


class Withdrawn(_Entry):
    """A call that the agent withdrew, with the gateway's answer."""

    kind: Literal["withdrawn"] = "withdrawn"
    call: str


class Question(BaseModel):
    """A question of a call as the gateway shows it at the end."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    approval: str
    revision: int
    state: str
    decided_by: str = ""
    votes: tuple[tuple[str, str], ...] = ()
    """Each counted answer: the person and the verdict."""


class Ended(_Entry):
    """The end of a call, as the gateway shows it."""

    kind: Literal["ended"] = "ended"
    call: str
    state: str
    """The code of the outcome for a turn's call. The state for an external call."""
    code: str = ""
    """The code of the outcome of an ended external call."""
    questions: tuple[Question, ...] = ()


class Verified(_Entry):
    """The result of `signoff audit verify` on the exported record."""

    kind: Literal["verified"] = "verified"
    ok: bool
    words: str


class Struck(_Entry):
    """A process that was killed, was started, or ended unexpectedly."""

    kind: Literal["struck"] = "struck"
    victim: str
    act: Literal["killed", "started", "refused", "ended"]
    words: str = ""


class Effect(_Entry):
    """A side effect, written by the tool itself."""

    kind: Literal["effect"] = "effect"
    call: str
    tool: str
    args: dict[str, Any]


Entry = Annotated[
    Planned
    | Proposed
    | Accepted
    | Answering
    | Answered
    | Used
    | Reported
    | Withdrawn
    | Ended
    | Verified
    | Struck
    | Effect,
    Field(discriminator="kind"),
]
_ENTRY: TypeAdapter[Entry] = TypeAdapter(Entry)


class Journal:
    """Appends entries to a file, each a line of JSON."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a", encoding="utf-8", buffering=1)

    def write(self, entry: Entry) -> None:
        self._file.write(entry.model_dump_json() + "\n")

    def close(self) -> None:
        self._file.close()


def read_entries(file: Path) -> Iterator[Entry]:
    if file.exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            yield _ENTRY.validate_json(line)
