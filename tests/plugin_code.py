from collections.abc import Callable

CHANNEL = """
    from signoff.plugins import BasePlugin
    from signoff.testing.recording_channel import RecordingChannel

    class Beeper(RecordingChannel):
        kind = {kind!r}

    class Made(BasePlugin):
        name = {name!r}

        def channels(self):
            return {{{kind!r}: Beeper}}
    """
ROUTES = """
    from signoff.calls import CallBody, Calls
    from signoff.plugins import BasePlugin, PluginRouter
    from starlette.responses import PlainTextResponse

    def write(request, fault, status, headers):
        return PlainTextResponse(f"beep {{fault.code}}", status, headers)

    router = PluginRouter({prefix!r}, tag="beeps", fault=write)

    @router.post("/calls", summary="Ask whether a call may run")
    async def ask(body: CallBody, calls: Calls) -> dict[str, str]:
        call = await calls.propose(body)
        return {{"state": call.answer.state, "id": call.id}}

    @router.get("/calls/{{call}}", summary="One call")
    async def show(call: str, calls: Calls) -> dict[str, str]:
        return {{"state": (await calls.wait(await calls.load(call), 0)).answer.state}}

    @router.post("/open", summary="Whoever asks", caller="anyone")
    async def hear(body: dict[str, int]) -> dict[str, int]:
        return body

    @router.post("/escape", summary="Whoever asks for calls", caller="anyone")
    async def escape(calls: Calls) -> dict[str, str]:
        return {{}}

    @router.get("/broken", summary="Fails", caller="anyone")
    async def fail() -> None:
        raise RuntimeError("a secret")

    class Made(BasePlugin):
        name = {name!r}

        def routers(self):
            return [router]
    """
Install = Callable[..., str]


def code(name: str = "beeper", kind: str = "beeper") -> str:
    return CHANNEL.format(name=name, kind=kind)


def routes(name: str = "beeper", prefix: str = "/plugins/beeper") -> str:
    return ROUTES.format(name=name, prefix=prefix)
