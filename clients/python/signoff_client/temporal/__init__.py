"""Approvals for Temporal: dangerous activities of any worker run only once they are permitted.

worker = Worker(client, ..., plugins=[Gated(gate, [refund])])
"""

from temporalio import workflow

# Workflows import `ask` from here, also in workers without a gate. Such a worker must report that, not fail to load.
with workflow.unsafe.imports_passed_through():
    from signoff_client.temporal.gated_activity import GatedActivity
    from signoff_client.temporal.plugin import Gated
    from signoff_client.temporal.workflow_approval import ask

__all__ = ["Gated", "GatedActivity", "ask"]
