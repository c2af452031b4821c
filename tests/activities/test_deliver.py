"""Notices as the activity keeps them: once, and only of the turn that tells of its own request."""

import dataclasses
from typing import Any

import pytest
from activity_kit import TURN, room_of
from channel_kit import a_request
from temporalio.testing import ActivityEnvironment

from signoff.activities.deliver import DeliverActivity
from signoff.contracts import names
from signoff.contracts.steps import DeliverTask, NoticeEvent
from signoff.store.notices import NoticeRow, Notices
from signoff.store.store import Store


async def kept(store: Store, *events: NoticeEvent, times: int = 1, **info: Any) -> list[NoticeRow]:
    """The notices in the store once the turn has told of these, so many times each."""
    env = ActivityEnvironment()
    env.info = dataclasses.replace(env.info, **{"workflow_id": TURN.workflow_id} | info)
    told = {"reminded": {"reminded": 1}, "escalated": {"escalated": True}}
    for event in events * times:
        request = a_request(tenant="main", session="s", turn="t", notify=("mail",), **told.get(event, {}))
        await env.run(DeliverActivity(room_of(store)).deliver, DeliverTask(event=event, request=request))
    return await Notices(store).claim(99)


async def test_each_event_is_kept_once(store: Store) -> None:
    """However often a worker is lost after it wrote, and before it could say so."""
    rows = await kept(store, "opened", "reminded", "escalated", "closed", times=3, workflow_type=names.ACTOR_TURN)
    assert [row.key for row in rows] == [
        f"main.s.t.c1.1:1:{event}:1" for event in ("opened", "reminded", "escalated", "closed")
    ]
    assert {(row.tenant, row.request.notify) for row in rows} == {("main", ("mail",))}


@pytest.mark.parametrize(
    "info",
    [
        {"workflow_type": "Other"},
        {"workflow_type": None, "workflow_id": None},
        {"workflow_type": names.ACTOR_TURN, "workflow_id": "turn/main/s/other"},
        {"workflow_type": names.ACTOR_TURN, "workflow_id": "turn/other/s/t"},
    ],
)
async def test_nobody_is_shown_a_request_of_somebody_else(store: Store, info: dict[str, Any]) -> None:
    """Whoever may start workflows may start this activity: no card of theirs reaches people."""
    assert await kept(store, "opened", **info) == []
