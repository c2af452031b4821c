"""The checks of a worker's start, also for commands that check a manifest beforehand."""

from collections.abc import Mapping

from signoff.activities.capability_backends import built_in_backends, check_backends
from signoff.activities.models.drivers import build_drivers
from signoff.contracts.completion import Driver
from signoff.contracts.errors import ConfigError
from signoff.registry.approver_coverage import check_approver_coverage
from signoff.registry.installation import Installation
from signoff.settings import login_roles, require_deployment, require_ready, require_real_model


async def check_start(installation: Installation, task_queue: str, **there: bool) -> Mapping[str, Driver]:
    """Return the drivers of a manifest's models.

    Raise `ConfigError` if no worker of `task_queue` could start with it. `there` names the requirements of a production
    start besides people, see `require_ready`.
    """
    settings, catalog = installation.settings, installation.catalog
    require_ready(settings, people=installation.has_people, **there)
    require_deployment(settings)
    require_real_model(settings.profile, (*catalog.models, settings.model))
    check_approver_coverage(
        catalog, installation.people, by_login=login_roles(settings), place=_people_place(installation)
    )
    check_backends(catalog.every_tool, built_in_backends(settings.state_dir / "storage"), task_queue)
    if installation.driver is not None:
        return dict.fromkeys(catalog.models, installation.driver)
    try:
        return await build_drivers(catalog, installation.secrets, instead=settings.model)
    except ConfigError as error:
        model = error.context.get("value")
        # The model may come from `defaults`.
        named = [name for name, actor in catalog.actors.items() if actor.model == model]
        if not named:
            raise
        hint = "" if ":" in str(model) else "; write `provider:model`, such as `openai:gpt-5`"
        raise ConfigError(f"actor `{named[0]}`: {error.message}{hint}", **error.context) from error


def _people_place(installation: Installation) -> str:
    if installation.settings.people is not None:
        return f"`{installation.settings.people}`"
    return "`people` of the manifest" if installation.version is None else "`App(people=...)`"
