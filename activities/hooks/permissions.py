"""Runs the permission checks of tools, or reuses a recent answer if the tool allows that."""

import dataclasses
import hashlib
import json
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from signoff.activities.hooks.hook_caller import NoAnswer, ask
from signoff.approvals.redaction import redact_secrets, secret_values
from signoff.contracts.call import CallContext
from signoff.contracts.clock import Clock
from signoff.contracts.errors import Unavailable
from signoff.contracts.person import Principal
from signoff.formats.replace import replace
from signoff.people.directory import Directory
from signoff.registry.catalog import Catalog
from signoff.registry.hooks import CHECK_PERMISSIONS, HookContext, Permission, PermissionCheck, hook_context
from signoff.registry.tool import Tool

# The store's libraries take half a second to import. Commands that judge a call without a store avoid this.
if TYPE_CHECKING:
    from signoff.store.store import Store

_REASON_CHARS: Final = 500
_KEPT: Final = 1_000

logger = logging.getLogger("signoff.activities")


async def permission_of(tool: Tool, args: Any, context: HookContext, seconds: float | None = None) -> Permission:
    """Never raises."""
    return (await _ask_check(tool, args, context, seconds))[0]


async def _ask_check(
    tool: Tool, args: Any, context: HookContext, seconds: float | None = None
) -> tuple[Permission, bool]:
    """Return the answer, and whether the check itself gave it: a check without an answer denies."""
    if tool.check_permissions is None:
        return Permission.allow(), True
    try:
        answer = await ask(CHECK_PERMISSIONS, tool.check_permissions, args, context, seconds=seconds)
    except NoAnswer as none:
        logger.warning("tool %s: the permission check %s", tool.name, none)
        return Permission.deny(f"the permission check {none}"), False
    # Redact before truncating: half of a secret would not be recognised.
    reason = redact_secrets(answer.reason, secret_values(args, tool.masked_arguments))[:_REASON_CHARS]
    return dataclasses.replace(answer, reason=reason), True


@dataclass(frozen=True)
class _Kept:
    """One answer, with its facts and time."""

    permission: Permission
    function: PermissionCheck | None
    facts: tuple[object, ...]
    at: datetime
    began: float


class PermissionCache:
    """The answers of one worker's permission checks. The oldest ones make room for others."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._people: dict[str, tuple[int, tuple[object, ...]]] = {}

    def version_of(self, tenant: str, people: tuple[object, ...]) -> int:
        """Return a number that changes whenever the people of a tenant do."""
        version, answer_before = self._people.get(tenant, (0, ()))
        if answer_before != people:
            version += 1
            self._people[tenant] = (version, people)
        return version

    def find(self, key: str, tool: Tool, facts: tuple[object, ...], at: datetime) -> Permission | None:
        """Return the answer that still applies `at` a moment under these facts, or `None`."""
        kept, seconds = self._kept.get(key), tool.cache_permission
        if kept is None or seconds is None or kept.function is not tool.check_permissions or kept.facts != facts:
            return None
        # Use both clocks: one may be set back, and the other may stop during the machine's sleep.
        fresh = timedelta() <= at - kept.at < timedelta(seconds=seconds) and time.monotonic() - kept.began < seconds
        return kept.permission if fresh else None

    def keep(self, key: str, found: _Kept) -> None:
        """Keep an answer, unless a later one is present, or a denial of the same moment."""
        other = self._kept.get(key)
        # The slower of two concurrent checks may report a permission from before its removal. Of two that began at
        # the same moment, the denial wins.
        if other is not None and (other.began, not other.permission.allowed) >= (found.began, True):
            return
        self._kept.pop(key, None)
        if len(self._kept) >= _KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = found


@dataclass(frozen=True)
class PermissionReader:
    """Runs permission checks for one worker.

    An answer of a tool with `cache_permission` is valid for a while, for exactly the same arguments, person and
    context. It lapses if people, remembered answers or catalog change.
    """

    catalog: Catalog
    store: "Store"
    directory_for: Callable[..., Awaitable[Directory]]
    clock: Clock
    cache: PermissionCache = field(repr=False)

    async def read(self, tool: Tool, args: Any, ctx: CallContext) -> Permission:
        """Never raises."""
        if tool.cache_permission is None:
            return await permission_of(tool, args, hook_context(ctx, self.catalog.fields))
        # Pass the check no more than the key holds, so that its answer cannot depend on anything else.
        asking = replace(ctx, turn="", user=_bare_principal(ctx.user))
        context = hook_context(asking, self.catalog.fields)
        facts = await self._facts(tool, ctx)
        if facts is None:
            return await permission_of(tool, args, context)
        key, at, began = self._key(tool, args, asking), self.clock(), time.monotonic()
        answer_before = self.cache.find(key, tool, facts, at)
        if answer_before is not None:
            return answer_before
        answer, own = await _ask_check(tool, args, context)
        if own:
            self.cache.keep(key, _Kept(answer, tool.check_permissions, facts, at, began))
        return answer

    async def _facts(self, tool: Tool, ctx: CallContext) -> tuple[object, ...] | None:
        """`None` if people or remembered answers cannot be read."""
        from signoff.store.grants import Grants  # noqa: PLC0415

        try:
            people = await self.directory_for(ctx.tenant, ctx.user.user)
            people_version = self.cache.version_of(ctx.tenant, people.all(ctx.tenant))
            person = people.find(ctx.user.user, ctx.tenant)
            human = people.person_id(ctx.user.user, ctx.tenant)
            grants = await Grants(self.store).state_of(ctx.tenant, tool.name)
        except Unavailable:
            return None
        return (people_version, person, human, grants)

    def _key(self, tool: Tool, args: Any, asking: CallContext) -> str:
        # Compare texts: `1`, `1.0` and `True` are one key to Python, but not one argument to a function.
        parts = (self.catalog.hash, tool.activity, json.dumps(args), repr(asking.model_dump()))
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _bare_principal(user: Principal) -> Principal:
    """Return the principal without data of a single turn, such as its signature."""
    same = user.model_dump(include={"user", "person_id", "name", "tier", "roles", "locale"})
    return Principal(**same)
