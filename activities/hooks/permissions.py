"""Asks the permission checks of tools, or answers by what one said a moment before where its tool allows that."""

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

# The store's libraries take half a second to import: commands that judge a call without a store do without.
if TYPE_CHECKING:
    from signoff.store.store import Store

_REASON_CHARS: Final = 500
_KEPT: Final = 1_000

logger = logging.getLogger("signoff.activities")


async def permission_of(tool: Tool, args: Any, context: HookContext, seconds: float | None = None) -> Permission:
    """Returns the answer of the tool's permission check to a call with these arguments. Never raises."""
    return (await _ask_check(tool, args, context, seconds))[0]


async def _ask_check(
    tool: Tool, args: Any, context: HookContext, seconds: float | None = None
) -> tuple[Permission, bool]:
    """Returns the answer, and whether it is the check's own: one that gave none denies."""
    if tool.check_permissions is None:
        return Permission.allow(), True
    try:
        answer = await ask(CHECK_PERMISSIONS, tool.check_permissions, args, context, seconds=seconds)
    except NoAnswer as none:
        logger.warning("tool %s: the permission check %s", tool.name, none)
        return Permission.deny(f"the permission check {none}"), False
    # Hidden before it is cut: half of a secret would not be found.
    reason = redact_secrets(answer.reason, secret_values(args, tool.masked_arguments))[:_REASON_CHARS]
    return dataclasses.replace(answer, reason=reason), True


@dataclass(frozen=True)
class _Kept:
    """One answer: under which facts, and when, it was asked for."""

    permission: Permission
    function: PermissionCheck | None
    facts: tuple[object, ...]
    at: datetime
    began: float


class PermissionCache:
    """Holds the answers of one worker's permission checks, the oldest of which make room for others."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._people: dict[str, tuple[int, tuple[object, ...]]] = {}

    def version_of(self, tenant: str, people: tuple[object, ...]) -> int:
        """Returns a number that is another one whenever the people of a tenant are not those of the last time."""
        version, known = self._people.get(tenant, (0, ()))
        if known != people:
            version += 1
            self._people[tenant] = (version, people)
        return version

    def find(self, key: str, tool: Tool, facts: tuple[object, ...], at: datetime) -> Permission | None:
        """Returns the answer that still counts `at` a moment under these facts, or None."""
        kept, seconds = self._kept.get(key), tool.cache_permission
        if kept is None or seconds is None or kept.function is not tool.check_permissions or kept.facts != facts:
            return None
        # By both clocks: one of them may be set back, the other may stand while the machine sleeps.
        fresh = timedelta() <= at - kept.at < timedelta(seconds=seconds) and time.monotonic() - kept.began < seconds
        return kept.permission if fresh else None

    def keep(self, key: str, found: _Kept) -> None:
        """Keeps an answer, unless one is there that was asked for later, or a denial at the same moment."""
        other = self._kept.get(key)
        # Of two that were asked at once the slower one may tell of the time before a permission was taken back. Of two
        # that began in one moment of the clock the no stands.
        if other is not None and (other.began, not other.permission.allowed) >= (found.began, True):
            return
        self._kept.pop(key, None)
        if len(self._kept) >= _KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = found


@dataclass(frozen=True)
class PermissionReader:
    """Asks permission checks for one worker. What a check of a tool with `cache_permission` said is good for a while:
    for the very same arguments, person and context, as long as people, remembered answers and catalog stay the same.
    """

    catalog: Catalog
    """The worker's catalog."""
    store: "Store"
    """Where remembered answers lie."""
    directory_for: Callable[..., Awaitable[Directory]]
    """Finds the directory as it is now."""
    clock: Clock
    """The time of day."""
    cache: PermissionCache = field(repr=False)
    """What checks said before."""

    async def read(self, tool: Tool, args: Any, ctx: CallContext) -> Permission:
        """Returns the answer of the tool's permission check to a call, given now or a moment before. Never raises."""
        if tool.cache_permission is None:
            return await permission_of(tool, args, hook_context(ctx, self.catalog.fields))
        # It is told no more than the key holds: what it does not know, its answer cannot hang on.
        asking = replace(ctx, turn="", user=_bare_principal(ctx.user))
        context = hook_context(asking, self.catalog.fields)
        facts = await self._facts(tool, ctx)
        if facts is None:
            return await permission_of(tool, args, context)
        key, at, began = self._key(tool, args, asking), self.clock(), time.monotonic()
        known = self.cache.find(key, tool, facts, at)
        if known is not None:
            return known
        answer, own = await _ask_check(tool, args, context)
        if own:
            self.cache.keep(key, _Kept(answer, tool.check_permissions, facts, at, began))
        return answer

    async def _facts(self, tool: Tool, ctx: CallContext) -> tuple[object, ...] | None:
        """Returns people and remembered answers as they are now; None where nobody can say."""
        from signoff.store.grants import Grants  # noqa: PLC0415

        try:
            people = await self.directory_for(ctx.tenant, ctx.user.user)
            everybody = self.cache.version_of(ctx.tenant, people.all(ctx.tenant))
            person = people.find(ctx.user.user, ctx.tenant)
            human = people.person_id(ctx.user.user, ctx.tenant)
            grants = await Grants(self.store).state_of(ctx.tenant, tool.name)
        except Unavailable:
            return None
        return (everybody, person, human, grants)

    def _key(self, tool: Tool, args: Any, asking: CallContext) -> str:
        # As texts: `1`, `1.0` and `True` are one key to Python, and not one argument to a function.
        parts = (self.catalog.hash, tool.activity, json.dumps(args), repr(asking.model_dump()))
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _bare_principal(user: Principal) -> Principal:
    """Returns the principal without all that each turn has of its own, such as its signature."""
    same = user.model_dump(include={"user", "person_id", "name", "tier", "roles", "locale"})
    return Principal(**same)
