"""A route on which an agent proposes a page before it sends it."""

from pydantic import BaseModel

from signoff.calls import CallBody, Calls
from signoff.plugins import PluginRouter

WAIT_SECONDS = 30

router = PluginRouter("/plugins/pager", tag="pager")


class Page(BaseModel):
    """A text for a pager."""

    to: str
    text: str


@router.post("/pages", summary="Ask whether a page may be sent")
async def ask(page: Page, calls: Calls) -> dict[str, str]:
    """Propose the call `send_page` and wait for approval. The agent sends the page if the state is `permitted`."""
    call = await calls.propose(CallBody(tool="send_page", args=page.model_dump()))
    call = await calls.wait(call, WAIT_SECONDS)
    return {"call": call.id, "state": call.answer.state}


@router.post("/pages/{call}/use", summary="Use the permit of a page, once")
async def use(call: str, calls: Calls) -> dict[str, str]:
    """Return the approved page. Approvers may have edited it."""
    used = await calls.use(await calls.load(call))
    return Page.model_validate(used.answer.args).model_dump()
