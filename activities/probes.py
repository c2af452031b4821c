"""Runs a tool's `probe` on calls with unknown outcomes before asking approvers."""

from typing import Any, Final

from temporalio import activity

from signoff.activities.call_journal import CallContent, Journal, attribute
from signoff.activities.capability_backends import handed_out_secrets
from signoff.activities.hooks.hook_caller import NoAnswer, ask
from signoff.activities.results.result_processor import ResultProcessor
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals import call_events
from signoff.contracts.activity_messages import ToolReply
from signoff.contracts.call import Permit
from signoff.formats.replace import replace
from signoff.registry.hooks import PROBE, CannotTell, DidNotHappen, Happened, ProbeAnswer
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.store.tickets import Claim

HAPPENED_NOTE: Final = "The tool did not answer; it was looked up, and this happened."
UNDONE_NOTE: Final = "it was looked up, and did not happen"


class ProbeRunner:
    """Runs the probe of one tool."""

    def __init__(self, deps: WorkerDeps, tool: Tool, results: ResultProcessor, seconds: float | None = None) -> None:
        self._deps = deps
        self._store = deps.store
        self._secrets = deps.secrets
        self._clock = deps.clock
        self._tool = tool
        self._results = results
        self._journal = Journal(deps, tool)
        self._seconds = seconds

    async def reply(self, permit: Permit, args: dict[str, Any], context: ToolContext) -> ToolReply | None:
        """Probe the call with the claimed ticket `context.idempotency_key`.

        Returns `None` if approvers must be asked. The finding is recorded on the ticket: the call is never probed
        again, even if the workflow is lost.
        """
        if self._tool.probe is None:
            return None
        answer = await self._answer(args, context)
        key = context.idempotency_key
        entry = call_events.probe_entry(permit, self._tool.name, key, _word(answer), self._clock())
        [entry] = await attribute(self._deps, permit.ctx, [entry])
        if isinstance(answer, Happened):
            budget = context.result_budget_chars
            secrets = handed_out_secrets(context.capabilities, self._secrets)
            made = await self._results.of(permit, args, answer.result, budget, key, secrets)
            note = " ".join(filter(None, (HAPPENED_NOTE, made.outcome.note)))
            outcome = replace(made.outcome, note=note)
            seen = [entry, *await self._journal.end(permit, outcome, key, CallContent(args, made.kept))]
            recorded = await self._store.record(key, outcome, also=self._journal.together(seen))
            await self._journal.apart(seen)
            return ToolReply(outcome=recorded)
        if isinstance(answer, DidNotHappen):
            found = await self._store.void_claimed(key, also=self._journal.together([entry]))
            await self._journal.apart([entry])
            # Not necessarily `undone`: a slow worker may have recorded its outcome in between, and that one counts.
            return recorded_reply(found)
        await self._journal.alone([entry])
        return None

    async def _answer(self, args: dict[str, Any], context: ToolContext) -> ProbeAnswer:
        if self._tool.probe is None:
            return CannotTell()
        try:
            return await ask(PROBE, self._tool.probe, args, context, seconds=self._seconds)
        except NoAnswer as none:
            # A failed probe knows nothing: treated as `DidNotHappen`, it would let the tool act twice.
            activity.logger.warning("the probe of %s %s", self._tool.name, none)
            return CannotTell()


def recorded_reply(found: Claim) -> ToolReply | None:
    """Return a ticket's outcome, or that the next ticket may be claimed, or `None`."""
    if found.kind == "done" and found.outcome is not None:
        return ToolReply(outcome=found.outcome)
    if found.kind == "void":
        return ToolReply(again="lapsed", note="the approval was not used in time")
    return ToolReply(again="undone", note=UNDONE_NOTE) if found.kind == "undone" else None


def _word(answer: ProbeAnswer) -> str:
    if isinstance(answer, CannotTell):
        return "unknown"
    return "happened" if isinstance(answer, Happened) else "did_not_happen"
