"""Draws cards for the details that Temporal shows of a turn; a worker gives its turns this, and nothing of it is kept.

A turn knows neither which arguments are secret nor where the inbox is. What it is told here goes into the answer to a
query alone: into no command and no history, and so it need not be the same when a history is read anew.
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
from signoff.contracts.approval import ApprovalRequest, Card
from signoff.contracts.message import CallPart
from signoff.formats.replace import replace

DETAILED_SECRETS: Final = 1_000
"""Secret values of a turn up to which the arguments of its requests are drawn in its details.

Each is looked for in every text of every card, in the thread that Temporal takes from a turn after `DEADLOCK_SECONDS`:
one card of 400 texts took 0.1 s with so many values of 14 spellings each, and 7.8 s with ten times as many.
"""

_log = logging.getLogger(__name__)


class DetailCards(Interceptor):
    """Gives the turns of a worker the cards that its catalog makes of their calls, and the cards' addresses."""

    def __init__(self, deps: WorkerDeps) -> None:
        self._deps = deps

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        """See `Interceptor`; no run is intercepted, only given two functions."""
        input.unsafe_extern_functions[names.DETAIL_CARD] = self.card
        input.unsafe_extern_functions[names.DETAIL_LINK] = self.link
        return None

    def link(self, approval_id: str) -> str:
        """Returns the address of a request's card in the inbox; "" where none is known here."""
        inbox = self._deps.public_url.rstrip("/")
        return f"{inbox}/approvals/{quote(approval_id, safe='.')}" if inbox else ""

    def card(self, request: ApprovalRequest, calls: Sequence[CallPart]) -> Card | None:
        """Draws the card of a request as the tool is declared here; no text of it repeats a secret of `calls`.

        Of a tool that is not declared here it draws only a note of that. None where the arguments lie in the store, or
        the secrets of `calls` are too many to be looked for. Never raises.
        """
        try:
            return self._card(request, calls)
        except Exception:
            # A turn must not stop because of what somebody might look at.
            _log.warning("the details of %s lack its arguments", request.id, exc_info=True)
            return None

    def _card(self, request: ApprovalRequest, calls: Sequence[CallPart]) -> Card | None:
        declared = self._deps.catalog.tools_named(request.tool)
        args = request.args.inline
        if not declared and not self._deps.catalog.declares(request):
            return Card(effect=request.card.effect, note=f"this worker has no tool `{request.tool}`")
        if not declared or request.args.blob is not None or not isinstance(args, dict):
            return None
        values = self._secrets([(request.tool, args), *((each.tool, each.args.inline) for each in calls)])
        if values is None:
            return None
        # Which of several is meant is not known here: then what any of them hides is hidden, and no title is used.
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
        return replace(card, effect=redact_secrets(request.card.effect, values))

    def _secrets(self, calls: Sequence[tuple[str, Any]]) -> frozenset[str] | None:
        """Returns the secret values of calls; None as soon as there are more than `DETAILED_SECRETS`."""
        found: frozenset[str] = frozenset()
        for call in calls:
            found |= self._deps.secrets_of([call])
            if len(found) > DETAILED_SECRETS:
                return None
        return found
