"""Signoff beside other ways to ask a person before an agent's tool runs, in one run: `python -m tools.bench.peers`.

Each side does the same work: a model without network proposes a payment, the payment runs, and the model concludes.
A payment of 420 waits for a person, one of 20 does not.

- `signoff`: every gate, a store, a ticket for each run, an approver from the directory, a record and its proof.
- `hand-written`: a workflow of Temporal alone, in the SDK's sandbox. It has none of these.
- `pydantic-ai`: Pydantic AI's integration with Temporal, as documented: the sandbox, the agent in the workflow's file,
  `approval_required`, and a handler of deferred calls that waits for a Signal. It has an agent loop, and no gates,
  store, directory, deadline, record or proof. Its activities send heartbeats.
- `pydantic-ai, no sandbox`: the same without the SDK's sandbox, as Signoff runs.
- `langgraph`: a graph with `interrupt`, and its checkpoints in PostgreSQL (`durability="sync"`). Turns run in the
  caller's process: without a server, no other process takes over. It has no gates, directory, deadline, record or
  proof, and no target.

Workers and clients of all sides share a process and `worker_options()`, and those on Temporal a server on SQLite.
Neither SQLite nor PostgreSQL waits for the disk.
"""
