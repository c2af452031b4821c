"""Measures the gates alone, without server or history: the decision on one call, and its ticket."""

import time
import uuid

from signoff.contracts.activity_messages import Tally
from signoff.contracts.call import CallContext, CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.message import CallPart
from signoff.contracts.person import Principal
from signoff.registry.gates.pipeline import judge
from signoff.store.store import Store
from tools.bench.report import GateTime
from tools.bench.sides import catalog
from tools.bench.turns import percentile


async def measure_gates(store: Store, calls: int) -> GateTime:
    """Return p50 of judging one call that must ask (every gate, both CEL engines), and of claiming and recording a
    ticket.
    """
    known = catalog()
    judged = []
    for number in range(calls):
        # Use another turn each time, so that a cache within a turn does not help.
        ctx = CallContext(actor="desk", session="s", turn=f"t{number}", tenant="main", user=Principal(user="guest"))
        args = {"amount": 420, "to": "Ana"}
        call = CallPart(call="c1.1", tool="pay", args=Content(inline=args))
        began = time.perf_counter()
        found = judge(known, ctx, call, args, Tally())
        judged.append((time.perf_counter() - began) * 1000)
        if found.kind != "ask":
            raise RuntimeError(f"the gates answered `{found.kind}` where a person must be asked")
    outcome = CallOutcome(call="c1.1", tool="pay", code="ok", value=Content(inline="paid"))
    written = []
    for _ in range(calls):
        key = uuid.uuid4().hex
        began = time.perf_counter()
        await store.claim(key, workflow=key, call="c1.1", tool="pay")
        await store.record(key, outcome)
        written.append((time.perf_counter() - began) * 1000)
    return GateTime(judge_p50_ms=percentile(judged, 50), ticket_p50_ms=percentile(written, 50))
