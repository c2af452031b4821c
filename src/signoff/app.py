"""`signoff.App`: one object that declares tools, actors and rules, and runs them."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from signoff.contracts.errors import ConfigError, SignoffError
from signoff.registry.import_reference import module_of
from signoff.registry.installation import Installation, load_installation
from signoff.registry.program.program import Program
from signoff.registry.program.program_loader import imported_program
from signoff.settings import Settings, load_settings

# Each way of running needs half of Signoff; a module that only declares tools needs none of it.
if TYPE_CHECKING:
    from fastapi import FastAPI
    from temporalio.client import Client
    from temporalio.worker import Worker

    from signoff.contracts.completion import Driver
    from signoff.testing.app_test import AppTest
    from signoff.worker import SignoffPlugin

_GUARD = """

    if __name__ == "__main__":
        app.run()
"""


class App(Program):
    """The declarations of a program: tools, actors, rules, people and channels, and the ways to run it.

    `people` are persons, a YAML file of them, or your own directory. `approvers` decide if a policy names none.
    `routing` orders the channels to people, and `rooms` show requests to teams. `oncall` are rotas of approvers.
    `model` is the default of actors. `registry` brings declared tools. `manifest` is a YAML file or directory, relative
    to the module, that adds to the declarations and may tighten them.
    `backends` are for the capabilities of tools, by kind. `reducers` shorten results of tools. `name` is in the head of
    pages, and in the greeting of `signoff dev`. `version` is the build id of its workers, for a versioned deployment.
    `settings` default to `SIGNOFF_*` and `signoff.toml`.
    """

    def run(self, **settings: Any) -> NoReturn:
        """Run everything in this process, for development, until Ctrl-C. Then end the process.

        Runs Temporal's server, a worker and the gateway. Ends the process without `finally` blocks and `atexit`, with 1
        after an error of one sentence. `settings` are fields of `Settings`, such as `port=8400`. Raises `ConfigError`
        during an import of its module.
        """
        if importing := imported_program():
            raise ConfigError(
                f"`app.run()` ran while `{importing}` was being imported; call it only if the module is run:{_GUARD}",
                field="app",
            )
        from signoff.cli.local.dev import run_program  # noqa: PLC0415

        try:
            code = run_program(self, self.reference, {**self._given(), **settings})
        except SignoffError as error:
            print(error.message, file=sys.stderr)
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        # Temporal's native threads can abort an interpreter that ends in the ordinary way and hide the exit code.
        os._exit(code)

    @asynccontextmanager
    async def worker(self, client: "Client | None" = None) -> AsyncIterator["Worker"]:
        """Run a worker of this app within the block. Yields Temporal's `Worker`.

        `client` is a Temporal client with Signoff's data converter and without `plugin()`. By default, `TEMPORAL_*`
        names the server. Raises `ConfigError`, `ServerUnavailable`, `StoreUnavailable`.
        """
        from signoff.worker import open_worker  # noqa: PLC0415

        async with open_worker(self.installation(), client) as worker, worker:
            yield worker

    def asgi(self, client: "Client | None" = None) -> "FastAPI":
        """Return the gateway as an application for an ASGI server: `uvicorn --factory refunds:app.asgi`.

        It opens store, keys and channels as it starts, and closes them as it ends. Serve it at the root of an address.
        `client` is a Temporal client with Signoff's data converter; left out, `TEMPORAL_*` names the server.
        """
        from signoff.gateway.app import create_app  # noqa: PLC0415

        return create_app(self._resolved(), self, client)

    def plugin(self) -> "AbstractAsyncContextManager[SignoffPlugin]":
        """Open the plugin for Temporal's `Client.connect(plugins=[...])` within the block.

        Every worker of that client then runs turns too; it must poll the gateway's task queue. Raises `ConfigError`,
        `StoreUnavailable`.
        """
        from signoff.worker import SignoffPlugin  # noqa: PLC0415

        return SignoffPlugin.of(self.installation())

    def test(self, model: "Driver | None" = None, **settings: Any) -> "AbstractAsyncContextManager[AppTest]":
        """Run the app for a test within the block, by default with the offline model.

        Yields an `AppTest`, with Temporal's server, a worker and a gateway: `async with app.test(model) as test`.

        `model` answers for every model of the actors, such as a `signoff.testing.ScriptedModel`. By default, the model
        `offline` answers for providers' models: `test.say("refund ana 50")`. `settings` are fields of `Settings`.
        `SIGNOFF_*` and `signoff.toml` are ignored. Channels and subscriptions with an address do not run. The block
        deletes its data at the end.
        """
        from signoff.testing.app_test import open_app_test  # noqa: PLC0415

        return open_app_test(self, model, settings)

    def installation(self) -> Installation:
        """Build the app, and return it with settings, people and source of secrets.

        Reads no secret, so a missing one is no error here. Raises `ConfigError`.
        """
        return load_installation(self._resolved(), program=self)

    @property
    def reference(self) -> str:
        """The import name of this app for another process, `MODULE:APP`. "" if no module has it."""
        for module_name, module in list(sys.modules.items()):
            for name, value in list(getattr(module, "__dict__", {}).items()):
                if value is self:
                    return f"{module_of(module_name)}:{name}"
        return ""

    def _resolved(self) -> Settings:
        return load_settings() if self.settings is None else self.settings

    def _given(self) -> dict[str, Any]:
        settings = self.settings
        return {} if settings is None else {name: getattr(settings, name) for name in settings.model_fields_set}
