"""Draws cards for the details that Temporal shows of a turn.

Workflows call this, but a turn does not know the secret arguments or the inbox's address. This data enters only the
answer to a query, never a command or the history. Therefore it may differ on replay.
"""

import logging
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from temporalio.worker import Interceptor, WorkflowInboundInterceptor, WorkflowInterceptorClassInput

from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.card import render_card
from signoff.approvals.redaction import redact_secrets
from signoff.contracts import names
from signoff.contracts.approval import Card, TurnQuestion
from signoff.contracts.message import CallPart
from signoff.formats.replace import replace

DETAILED_SECRETS: Final = 1_000
"""Maximum number of secret values of a turn for which its details show arguments.

The worker searches every text of every card for each value, in the thread that Temporal aborts after
`DEADLOCK_SECONDS`. One card of 400 texts took 0.1 s with this many values of 14 spellings each, and 7.8 s with ten
times as many.
"""

_log = logging.getLogger(__name__)


class DetailCards(Interceptor):
    """Gives a worker's turns the cards of their calls by its catalog, and the cards' addresses."""

    def __init__(self, deps: WorkerDeps) -> None:
        self._deps = deps

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        """Intercepts no run; only provides two functions."""
        input.unsafe_extern_functions[names.DETAIL_CARD] = self.card
        input.unsafe_extern_functions[names.DETAIL_LINK] = self.link
        return None

    def link(self, approval_id: str) -> str:
        """Return the address of a request's card in the inbox, or "" if unknown here."""
        inbox = self._deps.public_url.rstrip("/")
        return f"{inbox}/approvals/{quote(approval_id, safe='.')}" if inbox else ""

    def card(self, request: TurnQuestion, calls: Sequence[CallPart]) -> Card | None:
        """Draw a request's card without any secret of `calls`.

        For a tool not declared here, the card holds only a note about that. Returns `None` if the arguments are in the
        store, or if `calls` has too many secrets to search for. Never raises.
        """
        try:
            return self._card(request, calls)
        except Exception:
            # A turn must not fail because of its display.
            _log.warning("the details of %s lack its arguments", request.id, exc_info=True)
            return None

    def _card(self, request: TurnQuestion, calls: Sequence[CallPart]) -> Card | None:
        declared = self._deps.catalog.tools_named(request.tool)
        args = None if request.args is None else request.args.inline
        if not declared and self._deps.catalog.find_definition(request.tool, "") is None:
            return Card(effect=request.effect, note=f"this worker has no tool `{request.tool}`")
        if not declared or not isinstance(args, dict):
            return None
        values = self._secrets([(request.tool, args), *((each.tool, each.args.inline) for each in calls)])
        if values is None:
            return None
        # With several tools of that name, hide every argument that any of them hides, and use no title.
        only = declared[0] if len(declared) == 1 else None
        policy = None if only is None else self._deps.catalog.policy(only.activity).policy
        card = render_card(
            effect="",
            title="",
            tool=request.tool,
            args=args,
            schema={} if only is None else only.input_schema,
            secrets={name for each in declared for name in each.masked_arguments},
            show=None if policy is None else policy.show.only,
            others=values,
        )
        return replace(card, effect=redact_secrets(request.effect, values))

    def _secrets(self, calls: Sequence[tuple[str, Any]]) -> frozenset[str] | None:
        """Return the secret values of calls, or `None` above `DETAILED_SECRETS`."""
        found: frozenset[str] = frozenset()
        for call in calls:
            found |= self._deps.secrets_of([call])
            if len(found) > DETAILED_SECRETS:
                return None
        return found
