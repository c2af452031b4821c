"""Approvals for Temporal: activities that are named as dangerous run in anybody's worker only once they are permitted.

worker = Worker(client, ..., plugins=[Gated(gate, [refund])])
"""

from temporalio import workflow

# Workflows import `ask` from here, also in a worker that was given no gate: it is to say so, and not to fail to load.
with workflow.unsafe.imports_passed_through():
    from signoff_client.temporal.gated_activity import GatedActivity
    from signoff_client.temporal.plugin import Gated
    from signoff_client.temporal.workflow_approval import ask

__all__ = ["Gated", "GatedActivity", "ask"]
