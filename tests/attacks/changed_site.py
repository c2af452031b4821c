import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from attack_site import MANIFEST, AttackSite, running_site
from impostor import Impostor, impostor_of

from signoff.temporal.embedded_server import ServerHandle


@asynccontextmanager
async def changed_site(
    server: ServerHandle, folder: Path, appended: str = "", **variables: str
) -> AsyncIterator[tuple[AttackSite, Impostor, Path]]:
    site_folder, state = folder / "desk", folder / "state"
    shutil.copytree(MANIFEST.parent, site_folder, ignore=shutil.ignore_patterns("__pycache__"))
    state.mkdir()
    manifest = site_folder / MANIFEST.name
    manifest.write_text(manifest.read_text() + appended)
    async with (
        running_site(state, server, SIGNOFF_MANIFEST=str(manifest), **variables) as site,
        impostor_of(site.client, site.queue, MANIFEST, site.stores.gateway) as impostor,
    ):
        yield site, impostor, site_folder
