import asyncio
import contextlib
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from pathlib import Path

from signoff.temporal.embedded_server import free_port

CERBOS = Path(__file__).parent / "cerbos" / "node_modules" / "@cerbos" / "cerbos-linux-x64" / "cerbos-linux-x64"
_CONFIG = """\
server: {{httpListenAddr: "127.0.0.1:{http}", grpcListenAddr: "127.0.0.1:{grpc}"}}
storage: {{driver: disk, disk: {{directory: "{folder}/policies"}}}}
telemetry: {{disabled: true}}
"""


@contextlib.asynccontextmanager
async def running_cerbos(folder: Path, policy: str) -> AsyncIterator[str]:
    port = free_port()
    (folder / "policies").mkdir()
    (folder / "policies" / "policy.yaml").write_text(policy)
    (folder / "cerbos.yaml").write_text(_CONFIG.format(http=port, grpc=free_port(), folder=folder))
    words = (str(CERBOS), "server", "--config", str(folder / "cerbos.yaml"))
    process = await asyncio.create_subprocess_exec(*words, stdout=PIPE, stderr=DEVNULL)
    reading: asyncio.Task[None] | None = None
    try:
        assert process.stdout is not None
        async for line in process.stdout:
            if b"Starting HTTP server" in line:
                break
        else:
            raise AssertionError("Cerbos has ended before it served anything")
        reading = asyncio.create_task(_drain(process.stdout))
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        if reading is not None:
            await reading


async def _drain(stream: asyncio.StreamReader) -> None:
    # An unread pipe would block it.
    async for _ in stream:
        pass
