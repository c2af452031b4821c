"""Local activity `signoff.deliver`: writes down what those who are asked are to be told; the courier tells them."""

from temporalio import activity

from signoff.activities.room import Room
from signoff.approvals.notices import number
from signoff.contracts import names
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.ids import TurnKey
from signoff.contracts.steps import DeliverTask
from signoff.store.notices import Notices, notice_key


class DeliverActivity:
    """Puts notices where couriers find them. Raises `StoreUnavailable`."""

    def __init__(self, room: Room) -> None:
        self._notices = Notices(room.store)

    @activity.defn(name=names.DELIVER)
    async def deliver(self, task: DeliverTask) -> None:
        """Keep one notice, once however often it is tried."""
        request = task.request
        if not _own(request):
            activity.logger.warning("no notice is taken of a request that is not of the turn that tells of it")
            return
        await self._notices.put(notice_key(request, task.event, number(task)), request.tenant, task.event, request)


def _own(request: ApprovalRequest) -> bool:
    """Whether the request is of the turn that this activity is of: others could show people cards of their own."""
    info = activity.info()
    turn = TurnKey(request.tenant, request.session, request.turn)
    return info.workflow_type == names.ACTOR_TURN and info.workflow_id == turn.workflow_id
