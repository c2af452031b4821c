import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from activity_kit import ARGS, pinned, worker_deps
from tables import table
from turn_fixtures import GUEST, Ledger, TurnRig, pay_tool, yes

from signoff.activities.hooks import permissions
from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts.call import CallContext
from signoff.contracts.decision import GrantRequest
from signoff.contracts.errors import ConfigError, StoreUnavailable
from signoff.contracts.grant import GrantScope
from signoff.contracts.person import Person, Principal
from signoff.formats.replace import replace
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.people.directory import development_directory
from signoff.people.login import id_from_login
from signoff.people.vouched_directory import vouch
from signoff.registry.actor import Actor
from signoff.registry.catalog import build_catalog
from signoff.registry.hooks import HookContext, Permission
from signoff.registry.registry import ToolRegistry
from signoff.registry.tool import Tool
from signoff.store.grants import Grants, write_grant
from signoff.store.store import Store
from signoff.store.vouched_people import vouched_writer
from signoff.testing.scripted_model import calls, respond

NOW = datetime(2026, 11, 3, 12, tzinfo=UTC)
YES, NO = Permission.allow(), Permission.deny("taken back")


class Guard:
    def __init__(self, says: Permission | Exception = YES) -> None:
        self.says = says
        self.asked: list[tuple[dict[str, Any], HookContext]] = []

    async def __call__(self, args: dict[str, Any], context: HookContext) -> Permission:
        self.asked.append((args, context))
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


def cached(guard: Any, **fields: Any) -> Tool:
    given = {"requires_approval": False, "check_permissions": guard, "cache_permission": 60.0} | fields
    return pay_tool(Ledger(), **given)


class Rig:
    """Its check allows one call and denies all later calls."""

    def __init__(self, store: Store, **fields: Any) -> None:
        self.guard, self.now = Guard(), NOW
        self.tool = cached(self.guard, **fields)
        context = {"user.limit": {"type": "number"}, "data": {"type": "object"}}
        deps = worker_deps(store, self.tool, context=context)
        self.deps = dataclasses.replace(deps, clock=lambda: self.now)

    async def allowed(self) -> "Rig":
        assert await self.says() == YES
        assert await self.says() == YES
        assert len(self.guard.asked) == 1
        self.guard.says = NO
        return self

    async def says(self, args: Any = None, deps: WorkerDeps | None = None, **ctx: Any) -> Permission:
        return await self.read(pinned(**ctx), args, deps)

    async def read(self, ctx: CallContext, args: Any = None, deps: WorkerDeps | None = None) -> Permission:
        return await (deps or self.deps).permissions.read(self.tool, dict(args or ARGS), ctx)


@pytest.mark.row("F58")
async def test_permission_check_is_cached_for_the_same_call_and_person(store: Store) -> None:
    rig = await Rig(store).allowed()
    assert await rig.says(turn="another") == YES
    assert await rig.says(user=replace(GUEST, nonce="another", issued_at=NOW)) == YES
    rig.now = NOW + timedelta(seconds=59.9)
    assert await rig.says() == YES
    rig.now = NOW + timedelta(seconds=60)
    assert await rig.says() == NO
    # A denial is cached exactly as long as an approval.
    rig.guard.says = YES
    rig.now = NOW + timedelta(seconds=119.9)
    assert await rig.says() == NO
    rig.now = NOW + timedelta(seconds=120)
    assert await rig.says() == YES
    assert len(rig.guard.asked) == 3


@table(
    "other",
    {"tenant": "other"}, {"session": "other"}, {"actor": "other"}, {"channel": "slack"}, {"route": "r"},
    {"step": "s"}, {"extra": {"data": {"amount": 2}}}, {"extra": {"user.limit": 7}},
    {"user": Principal(user="ana")}, {"user": replace(GUEST, roles=("late",))},
    {"user": replace(GUEST, tier="trusted")}, {"user": replace(GUEST, name="Ana")},
    {"user": replace(GUEST, person_id="ana")}, {"user": replace(GUEST, locale="pt")},
    ids=str,
)  # fmt: skip
async def test_cached_permission_does_not_apply_to_another_person_or_place(store: Store, other: dict[str, Any]) -> None:
    rig = await Rig(store).allowed()
    assert await rig.says(**other) == NO
    assert await rig.says() == YES


@table(
    "args",
    {"amount": 21, "to": "Ana"}, {"amount": 20, "to": "ana"}, {"amount": 20}, {"amount": 20.0, "to": "Ana"},
     {"amount": 20, "to": "Ana", "more": None}, {"amount": "20", "to": "Ana"}, {"amount": True, "to": "Ana"},
    ids=str,
)  # fmt: skip
async def test_cached_permission_does_not_apply_to_other_arguments(store: Store, args: dict[str, Any]) -> None:
    rig = await Rig(store).allowed()
    assert await rig.says(args) == NO
    assert await rig.says({"to": "Ana", "amount": 20}) == NO


async def test_check_sees_only_the_fields_of_its_cache_key(store: Store) -> None:
    rig = Rig(store)
    user = replace(GUEST, nonce="n", signature="s", issued_at=NOW, given=("x",), store_id="d")
    await rig.says(turn="t7", user=user, transient=("pay",))
    [(args, context)] = rig.guard.asked
    assert (args, context.turn, context.user) == (ARGS, "", GUEST)
    assert (context.session, context.actor, context.tenant) == ("s", "desk", "main")


async def test_check_sees_the_declared_context_of_its_cache_key(store: Store) -> None:
    rig = Rig(store)
    await rig.says(extra={"user.limit": 7, "data": {"amount": 2}})
    [(_, context)] = rig.guard.asked
    assert (context.context, context.data) == ({"user": {"limit": 7}}, {"amount": 2})


@table("people", (), (Person(id="ana"), Person(id="guest", tier="trusted")), (Person(id="ben"),))
async def test_change_of_people_clears_cached_permissions(store: Store, people: tuple[Person, ...]) -> None:
    rig = Rig(store)
    before = dataclasses.replace(rig.deps, people=development_directory([Person(id="ana")]))
    after = dataclasses.replace(rig.deps, people=development_directory(people))
    assert await rig.says(deps=before) == YES
    rig.guard.says = NO
    assert await rig.says(deps=before) == YES
    assert await rig.says(deps=after) == NO
    assert await rig.says(deps=before) == NO


async def test_change_of_people_in_another_tenant_keeps_cached_permissions(store: Store) -> None:
    rig = await Rig(store).allowed()
    people = development_directory([Person(id="ana", tenant="other")])
    assert await rig.says(deps=dataclasses.replace(rig.deps, people=people)) == YES


SIGNER = Signer(PrivateKeys(keys=(new_key(NOW - timedelta(days=9)),)))
LOGIN = "https://login.example.com#7"
CY = Person(id=id_from_login(LOGIN), tenant="other", identities={"oidc": (LOGIN,)})
ANA = Person(id="ana", tenant="other", identities={"email": ("ana@example.com",)})


@table(
    ("before", "after", "names"),
    (CY, replace(CY, roles=("late",)), ()),
    (CY, None, ()),
    (None, CY, ()),
    (None, CY, ANA.id),
    ids=["other roles", "signed out", "first seen", "somebody else"],
)
async def test_change_of_a_signed_in_identity_clears_cached_permissions(
    store: Store, before: Person | None, after: Person | None, names: str
) -> None:
    rig = Rig(store)
    people = development_directory([ANA])
    rig.deps = dataclasses.replace(rig.deps, people=people, verifier=SIGNER.verifier())

    async def sign_in(person: Person | None) -> None:
        claimed = ANA.identities["email"] if names else ()
        life = timedelta(days=1 if person else -1)
        vouched = vouch(SIGNER, person or CY, names=claimed, now=NOW, lifetime=life)
        await store.run(vouched_writer(vouched))

    asking: dict[str, Any] = {"tenant": "other", "user": Principal(user=CY.id)}
    if before is not None:
        await sign_in(before)
    assert await rig.says(**asking) == YES
    rig.guard.says = NO
    assert await rig.says(**asking) == YES
    await sign_in(after)
    assert await rig.says(**asking) == NO


async def test_permission_checked_during_a_change_of_people_is_not_cached(store: Store) -> None:
    rig = Rig(store)
    began, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(args: dict[str, Any], context: HookContext) -> Permission:
        began.set()
        await goes_on.wait()
        return YES

    rig.tool = dataclasses.replace(rig.tool, check_permissions=slow)
    asking = asyncio.create_task(rig.says())
    await began.wait()
    rig.deps = dataclasses.replace(rig.deps, people=development_directory([Person(id="ana")]))
    goes_on.set()
    assert await asking == YES
    began.clear()
    await rig.says()
    assert began.is_set()


async def grant(store: Store, verdict: Any = "approved", tool: str = "pay", seconds: float = 60.0) -> None:
    like = GrantScope(tenant="main", session="", tool=tool, definition="d", where="true", policy_hash="p")
    wish = GrantRequest(scope="tenant", where="true", uses=1, seconds=seconds)
    await store.run(
        lambda connection: write_grant(
            connection,
            f"{tool}-{verdict}",
            verdict,
            like,
            wish,
            people=("approver",),
            approval_id="a",
            requester="guest",
        )
    )


@table("change", "given", "denied", "revoked", "spent", "of another tool")
async def test_change_of_grants_for_the_tool_clears_cached_permissions(store: Store, change: str) -> None:
    rig = Rig(store)
    if change in ("revoked", "spent"):
        await grant(store)
    await rig.allowed()
    if change in ("given", "denied"):
        await grant(store, "approved" if change == "given" else "denied")
    elif change == "revoked":
        await Grants(store).revoke("pay-approved", "main", by="approver")
    elif change == "spent":
        assert await Grants(store).use("pay-approved", "ticket")
    else:
        await grant(store, tool="other")
    assert await rig.says() == (YES if change == "of another tool" else NO)


@table("changed", {"description": "Pays."}, {"tags": ("late",)}, {"cache_permission": 30.0})
async def test_change_of_the_catalog_clears_cached_permissions(store: Store, changed: dict[str, Any]) -> None:
    rig = await Rig(store).allowed()
    tool = dataclasses.replace(rig.tool, **changed)
    other = dataclasses.replace(rig.deps, catalog=worker_deps(store, tool).catalog)
    assert await other.permissions.read(tool, dict(ARGS), pinned()) == NO
    rig.tool = dataclasses.replace(rig.tool, check_permissions=Guard(NO))
    assert await rig.says() == NO


async def test_clock_set_back_does_not_extend_cached_permissions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = await Rig(store).allowed()
    rig.now = NOW - timedelta(seconds=1)
    assert await rig.says() == NO
    rig = await Rig(store).allowed()
    elapsed = permissions.time.monotonic() + 60
    monkeypatch.setattr(permissions.time, "monotonic", lambda: elapsed)
    assert await rig.says() == NO


@table(("seconds", "found"), (59.5, YES), (60.0, NO))
async def test_cached_permission_expires_exactly_at_its_end(
    store: Store, monkeypatch: pytest.MonkeyPatch, seconds: float, found: Permission
) -> None:
    moments = SimpleNamespace(monotonic=lambda: 1_000.0)
    monkeypatch.setattr(permissions, "time", moments)
    rig = await Rig(store).allowed()
    moments.monotonic = lambda: 1_000.0 + seconds
    assert await rig.says() == found


async def test_failed_permission_check_is_not_cached(store: Store) -> None:
    rig = Rig(store)
    rig.guard.says = RuntimeError("no directory")
    assert (await rig.says()).allowed is False
    rig.guard.says = YES
    assert await rig.says() == YES


@table("one_moment", True, False)
@table("later_first", True, False)
async def test_later_of_two_concurrent_permission_answers_is_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch, later_first: bool, one_moment: bool
) -> None:
    # A slow approval from before a change must not replace the fast denial from after it. If both started at the
    # same clock time, their order is unknown and the denial counts.
    if one_moment:
        monkeypatch.setattr(permissions, "time", SimpleNamespace(monotonic=lambda: 1_000.0))
    rig = Rig(store)
    gates = [asyncio.Event(), asyncio.Event()]
    waiting = list(zip(gates, (YES, NO), strict=True))

    async def check(args: dict[str, Any], context: HookContext) -> Permission:
        gate, answer = waiting.pop(0)
        await gate.wait()
        return answer

    rig.tool = dataclasses.replace(rig.tool, check_permissions=check)
    first = asyncio.create_task(rig.says())
    while len(waiting) == 2:
        await asyncio.sleep(0.001)
    second = asyncio.create_task(rig.says())
    while waiting:
        await asyncio.sleep(0.001)
    for gate, asking in zip(
        gates[::-1] if later_first else gates, (second, first) if later_first else (first, second), strict=True
    ):
        gate.set()
        await asking
    assert await rig.says() == NO


async def test_unavailable_store_disables_the_permission_cache(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = await Rig(store).allowed()

    async def away(*_: Any) -> Any:
        raise StoreUnavailable("the store did not answer")

    monkeypatch.setattr(Grants, "state_of", away)
    assert [await rig.says(), await rig.says()] == [NO, NO]
    assert [args for args, _ in rig.guard.asked] == [ARGS, ARGS, ARGS]


async def test_full_permission_cache_evicts_oldest_entries(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions, "_KEPT", 2)
    rig = Rig(store)
    for amount in (1, 2, 3):
        await rig.says({"amount": amount})
    rig.guard.says = NO
    assert [(await rig.says({"amount": amount})).allowed for amount in (2, 3)] == [True, True]
    assert await rig.says({"amount": 1}) == NO


async def test_permission_cache_is_opt_in_and_limited_to_five_minutes(store: Store) -> None:
    rig = Rig(store, cache_permission=None)
    assert [await rig.says(), await rig.says()] == [YES, YES]
    assert [context.turn for _, context in rig.guard.asked] == ["t", "t"]
    for seconds in (0, -1.0, 300.1, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="needs `cache_permission` to be above 0 and at most 300 seconds"):
            cached(Guard(), cache_permission=seconds)
    with pytest.raises(ConfigError, match="has `cache_permission`, but no `check_permissions`"):
        ToolRegistry([cached(None)])


@pytest.mark.row("F58")
async def test_cached_permission_serves_proposal_and_run_but_not_approved_calls(turn_rig: TurnRig) -> None:
    guard, ledger = Guard(), Ledger()
    tools = [
        pay_tool(ledger, asks, name=name, check_permissions=guard, cache_permission=60.0)
        for name, asks in (("look", False), ("pay", True))
    ]
    catalog = build_catalog(tools=tools, actors=[Actor(name="desk", model="scripted")])
    model = [calls(("look", ARGS)), calls(("look", ARGS)), calls(("pay", ARGS)), respond("done")]
    async with turn_rig.running(catalog, model) as turns:
        key = await turns.start_waiting()
        assert len(guard.asked) == 2
        guard.says = NO
        result = await turns.result_after(yes(key, "c3.1"))
        await turns.replays(key)
    assert [(each.tool, each.code, each.gate) for each in result.calls] == [
        ("look", "ok", "execute"), ("look", "ok", "execute"), ("pay", "denied", "permission"),
    ]  # fmt: skip
    assert [name for name, _, _ in ledger.rows] == ["look", "look"]
