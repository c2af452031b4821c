"""The gate before an agent's dangerous calls."""

import functools
import inspect
import time
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any, Final, ParamSpec, TypeVar, cast

from signoff_client.call import Call, NotRun
from signoff_client.exchange import CallExchange, SuspendedUse
from signoff_client.messages import Proposal
from signoff_client.transport import Transport

P = ParamSpec("P")
R = TypeVar("R")

VERSION: Final = "0.1.0"
_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Gate:
    """Asks the gateway at `url` before a call is run, as the external agent that owns the token.

    Without a permit, no call runs: also if the gateway is down, its answer is invalid, or it refuses the token. Tasks,
    event loops and threads can share a gate: it holds no connections.
    """

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        user: str | None = None,
        session: str | None = None,
        wait: float | None = None,
        patience: float = 60.0,
    ) -> None:
        """Use the gateway at `url`, for `user` in `session` unless a call names others.

        Waits for approvers until their deadline, or for `wait` seconds. Retries a gateway without an answer for
        `patience` seconds. Raises `ValueError` for an invalid address or token, and for a token on plain HTTP to
        another machine.
        """
        self._transport = Transport(url, token, f"signoff-client/{VERSION}")
        self._user = user
        self._session = session
        self._wait = wait
        self._patience = patience
        self._suspended: dict[str, SuspendedUse] = {}

    def call(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        user: str | None = None,
        session: str | None = None,
        says: str = "",
        wait: float | None = None,
        timeout: str | float | None = None,
        withdraw: bool = False,
        callback: Mapping[str, Any] | None = None,
        patience: float | None = None,
    ) -> Call:
        """Return a call to enter: `async with gate.call(...) as call`, or `with`.

        `key` is the agent's own id of the call. The same key, from any process, means the same call. Without a key,
        equal calls are joined until one is used. `says` is the agent's remark on the call.

        `wait` limits the wait for approvers in seconds. `timeout`, such as `"8h"`, is the time for the report once the
        call runs. With `withdraw`, a task that is cancelled during the wait withdraws the call. `callback` is the
        target that the gateway notifies when the call is settled. `patience` defaults to the gate's.
        """
        proposal = Proposal(
            tool,
            dict(args or {}),
            key=key,
            user=self._user if user is None else user,
            session=self._session if session is None else session,
            says=says,
            timeout=timeout,
            wait=self._wait if wait is None else wait,
            callback=callback,
        )
        return Call(self._transport, proposal, self._exchange(proposal, patience), withdraw=withdraw)

    def find(
        self,
        call_id: str,
        *,
        wait: float | None = None,
        patience: float | None = None,
        attempt: str = "",
        is_repeated: bool = True,
    ) -> Call:
        """Return a call that another program has proposed, for a receiver of its callback.

        Enter it like any other call. `attempt` names this attempt to use the permit, in case a program that crashed has
        begun it. The permit is handed out again for the same attempt, so the effect must tolerate a repeat. Without
        `is_repeated`, the attempt is new, and a used permit is not handed out.
        """
        proposal = Proposal("", {}, wait=self._wait if wait is None else wait)
        exchange = self._exchange(proposal, patience)
        exchange.id, exchange.is_found = call_id, True
        if attempt:
            exchange.attempt, exchange.is_repeated = attempt, is_repeated
        return Call(self._transport, proposal, exchange, withdraw=False)

    def guard(
        self,
        effect: str = "",
        *,
        tool: str = "",
        key: Callable[..., str] | None = None,
        user: str | None = None,
        session: str | None = None,
        wait: float | None = None,
        explain: bool = False,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Return a decorator: the function, with or without `async`, runs if a call of its name is permitted.

        It gets the approved arguments. `effect` names arguments in braces and goes with the call as the agent's own
        words. `key` makes the call's key from the function's arguments. If the call is not run, it raises `NotRun`.
        With `explain`, for a function that answers a model, it returns the explanation. Raises `ValueError` for a
        function with unnamed arguments, or an `effect` with unknown ones.
        """

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            signature = _check_signature(function, effect)
            name = tool or function.__name__

            def prepare(args: Any, kwargs: Any) -> Call:
                bound = signature.bind(*args, **kwargs)
                bound.apply_defaults()
                bound_args = dict(bound.arguments)
                own = None if key is None else key(*args, **kwargs)
                says = _describe(effect, bound_args)
                return self.call(name, bound_args, key=own, user=user, session=session, says=says, wait=wait)

            @functools.wraps(function)
            async def ask(*args: P.args, **kwargs: P.kwargs) -> Any:
                async with prepare(args, kwargs) as call:
                    if call:
                        call.result = await cast(Any, function)(**call.args)
                return _result(call, explain)

            @functools.wraps(function)
            def ask_blocking(*args: P.args, **kwargs: P.kwargs) -> Any:
                with prepare(args, kwargs) as call:
                    if call:
                        call.result = cast(Any, function)(**call.args)
                return _result(call, explain)

            return cast(Callable[P, R], ask if inspect.iscoroutinefunction(function) else ask_blocking)

        return decorate

    def _exchange(self, proposal: Proposal, patience: float | None) -> CallExchange:
        patience = self._patience if patience is None else patience
        return CallExchange(proposal, patience, time.monotonic, suspended=self._suspended)


def _check_signature(function: Callable[..., Any], effect: str) -> inspect.Signature:
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        if parameter.kind not in _NAMED:
            raise ValueError(f"`{function.__name__}` cannot be guarded: `{parameter}` has no name to show to approvers")
    names = {name for _, name, _, _ in Formatter().parse(effect) if name is not None}
    if unknown := sorted(names - set(signature.parameters)):
        raise ValueError(f"the effect of `{function.__name__}` names `{unknown[0]}`, which is not an argument")
    return signature


def _describe(effect: str, args: Mapping[str, Any]) -> str:
    try:
        return effect.format_map(args)
    except (TypeError, ValueError):
        # The format does not fit the value, such as text for a number. Approvers still see the arguments themselves.
        return effect


def _result(call: Call, explain: bool) -> Any:
    has_run = bool(call) or (call.state == "ended" and call.status.code == "ok")
    if explain and (call.is_edited or not has_run):
        return call.text
    if has_run:
        return call.result
    raise NotRun(call)
