"""Each predicate succeeded before: it took 1.1 to 3 GiB, or 2 to 60 seconds, at approval and at every later call."""

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from attack_05_bombs import BOMBS, SCHEMA, large
from attack_site import MANIFEST, AttackSite, approval_id, payee

from signoff.contracts.call import REQUIRES_APPROVAL
from signoff.contracts.decision import GrantRequest
from signoff.contracts.grant import GrantScope
from signoff.contracts.limits import MIB
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.registry import definition_hash
from signoff.store.grants import Grants, write_grant
from signoff.store.store import open_store

MOST_BYTES = 200 * MIB
"""The memory allowed to a process that evaluates a bomb; it needs 50 to 200 MiB without one."""
MOST_SECONDS = 5.0
CHILDREN = """
import json, os, resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
from signoff import policypool
from signoff.contracts.errors import ConfigError
from signoff.policy.compiled_policy import compile_policy
from signoff.policy.facts import ToolFacts
from signoff.policy.grant_predicate import compile_where

def tried(where):
    policypool.install()
    policy = compile_policy(True, tool=ToolFacts("batch", "generalist", "routed", ()), input_schema=schema)
    begun = time.process_time()
    try:
        found = str(compile_where(where, policy).holds(args))
    except ConfigError as error:
        found = "refused"
    if sys.platform == "linux":
        # Not `ru_maxrss`: Linux keeps it over `exec`, so that it holds what the process of the tests had.
        lines = open("/proc/self/status").read().splitlines()
        peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) << 10
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << (0 if sys.platform == "darwin" else 10)
    return found, peak, time.process_time() - begun

bombs, schema, args = json.load(sys.stdin)
for name, where in bombs.items():
    if os.fork() == 0:
        # One that goes off ends its own process, and has no line.
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
        print(json.dumps([name, *tried(where)]), flush=True)
        os._exit(0)
    os.wait()
"""
"""Run each bomb in a process forked from a parent with all imports. A process that ends well prints a line."""


@pytest.fixture(scope="module")
def tried() -> dict[str, tuple[str, int, float]]:
    asked = json.dumps([BOMBS, SCHEMA, large("Ana")])
    command = [sys.executable, "-c", CHILDREN]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True)
    return {name: (found, peak, seconds) for name, found, peak, seconds in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", BOMBS)
def test_predicate_bomb_is_refused_at_low_cost(name: str, tried: dict[str, tuple[str, int, float]]) -> None:
    # Compiled or evaluated, a bomb is refused or does not apply, within 200 MiB and a few seconds of processor time.
    # With `GrantPredicate.holds` asking `Expression.evaluate_here`, and nothing refused by `compile_where` and
    # `growth_problem`, each held, or took up to 3 GiB or more than 60 seconds.
    found, peak, seconds = tried[name]
    assert found in ("refused", "False")
    assert peak < MOST_BYTES
    assert seconds < MOST_SECONDS


@pytest.fixture
def limited(site: AttackSite) -> Iterator[None]:
    """Limit both processes to 3 GiB more of address space, so that a bomb hurts only them."""
    if sys.platform != "linux":
        pytest.skip("limits of another process are set on Linux only")
    before = {}
    for process in site.processes.values():
        most = psutil.Process(process.pid).memory_info().vms + (3 << 30)
        before[process.pid] = resource.prlimit(process.pid, resource.RLIMIT_AS)
        resource.prlimit(process.pid, resource.RLIMIT_AS, (most, before[process.pid][1]))
    yield
    for pid, limit in before.items():
        if psutil.pid_exists(pid):
            resource.prlimit(pid, resource.RLIMIT_AS, limit)


def peaks(site: AttackSite) -> dict[str, int]:
    """In bytes."""
    found = {}
    for name, process in site.processes.items():
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        found[name] = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
    return found


async def test_gateway_refuses_to_remember_a_predicate_bomb(site: AttackSite, limited: None) -> None:
    # Each is `malformed` with an explanation, the request still waits, and the gateway does not grow. With
    # `GrantPredicate.holds` asking `Expression.evaluate_here`, and nothing refused by `compile_where` and
    # `growth_problem`, a bomb was accepted.
    to, before = payee(), peaks(site)
    ana = site.person("ana")
    approval = approval_id(await site.person("rui").ask([("batch", large(to))]))
    shown = await ana.waiting(approval)
    for where in BOMBS.values():
        remember: dict[str, Any] = {"scope": "tenant", "where": where, "uses": 5}
        answer = (await ana.decide(shown, remember=remember, seen=shown.view["seen"])).json()
        assert (answer["status"], answer["code"]) == ("refused", "malformed"), where
        assert "`remember.where`" in answer["message"]
    assert (await ana.see(approval)).view["state"] == "pending"
    assert {name: peak for name, peak in peaks(site).items() if peak > before[name] + MOST_BYTES} == {}
    assert site.ledger(to) == []


async def test_predicate_bomb_in_the_store_asks_an_approver(site: AttackSite, limited: None) -> None:
    # Grants written under looser rules, approvals and denials, apply to no call, and an approver is asked soon. With
    # the same mutation and no steps counted in `GrantUse.consulted`, no approver was asked within 60 seconds.
    to, before = payee(), peaks(site)
    catalog = load_manifest(MANIFEST)
    tool = catalog.tool("batch")
    assert tool is not None
    like = {"tenant": "main", "session": "", "tool": "batch", "definition": definition_hash(tool)}
    asks = {"rule": REQUIRES_APPROVAL, "policy_hash": catalog.policy("batch").hash}
    async with open_store(site.stores.gateway) as store:
        for number, where in enumerate(BOMBS.values()):
            write = partial(
                write_grant,
                grant_id=f"g05{number:013d}",
                verdict="denied" if number % 2 else "approved",
                like=GrantScope(**like, where=where, **asks),
                wish=GrantRequest(scope="tenant", where=where, seconds=600, uses=100),
                people=("ana",),
                approval_id="main.s.t.c1.1",
                requester="rui",
            )
            await store.run(write)
        try:
            key = await site.person("rui").ask([("batch", large(to))])
            assert (await site.person("ana").waiting(approval_id(key))).view["state"] == "pending"
        finally:
            for number in range(len(BOMBS)):
                await Grants(store).revoke(f"g05{number:013d}", "main", by="ana")
    assert {name: peak for name, peak in peaks(site).items() if peak > before[name] + MOST_BYTES} == {}
    assert site.ledger(to) == []
