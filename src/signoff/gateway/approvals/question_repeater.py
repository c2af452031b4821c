"""Wakes again the turns of approvers' questions that have no answer."""

import asyncio
import logging
import time
from typing import Final

from signoff.contracts.errors import Unavailable
from signoff.gateway.approvals.question_service import QuestionService
from signoff.gateway.deps import GatewayDeps
from signoff.store.questions.request_messages import RequestMessages

LOOK_SECONDS: Final = 10.0
ASKED_AGAIN_SECONDS: Final = 30.0
"""The age of a question without an answer, in seconds, at which its turn is woken again."""
LONGEST_PAUSE: Final = 600.0
"""Longest pause, in seconds, between two wakes for one question: each is an event in the turn's history."""
_AT_ONCE: Final = 1_000
_log = logging.getLogger(__name__)


class QuestionRepeater:
    """Pauses ever longer between the wakes for one question."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._service = QuestionService(deps)
        self._messages = RequestMessages(deps.store)
        self._due: dict[str, tuple[float, float]] = {}

    async def run(self) -> None:
        while True:
            try:
                await self.step()
            except Unavailable as error:
                _log.warning("questions cannot be repeated now: %s", error.message)
            await asyncio.sleep(LOOK_SECONDS)

    async def step(self, older_than: float = ASKED_AGAIN_SECONDS) -> int:
        """Return the number of wakes. Raises `StoreUnavailable`."""
        asked = await self._messages.list_unanswered(older_than, _AT_ONCE)
        now = time.monotonic()
        self._due = {each.approval: self._due.get(each.approval, (now, ASKED_AGAIN_SECONDS)) for each in asked}
        due = [each for each in asked if self._due[each.approval][0] <= now]
        for each in due:
            pause = self._due[each.approval][1]
            self._due[each.approval] = (now + pause, min(2 * pause, LONGEST_PAUSE))
            await self._service.announce(each)
        return len(due)
