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
    """Asks the gateway at `url` before a call is run, as the external agent whose token it has.

    Everything that is no permit means no: a gateway that cannot be reached, an answer that is none, a token that is
    refused. A gate holds no connections: it may be shared by tasks, event loops and threads.
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
        """Speaks to the gateway at `url`, for `user` in `session` unless a call names others.

        It waits for people for as long as they are asked, or for `wait` seconds.
        `patience` is for how many seconds a gateway that gives no answer is tried again. Raises `ValueError` for an
        address or a token that cannot be one, and for a token on plain HTTP to another machine.
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
        """Returns a call to be entered: `async with gate.call(...) as call`, or `with`.

        `key` is the agent's own id of the call, such as the model's: the same again, from any process, is the same
        call; without one equal calls are joined as long as none of them was used. `says` are the words beside it.
        `wait` is for how many seconds people are waited for, `timeout` within which time it is reported once it runs,
        such as `"8h"`. With `withdraw` a task that is cancelled while it waits withdraws the call. `callback` says whom
        the gateway tells once the call is settled. `patience` is the gate's where it is left out.
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
        """Returns the call of an id, which another program has proposed: for whoever was told that it is settled.

        It is entered as any other. `attempt` names this try to use its permit where a program that died may have begun
        it: the permit is handed out again for it, so what is run then must bear to be run again. Without `is_repeated`
        no earlier program has the name of this try, and a permit that was used is not handed out.
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
        """Returns a decorator: the function, with or without `async`, runs where a call of its name may.

        It is called with the arguments that were approved. `effect` names arguments in braces and goes with the call as
        the agent's own words. `key` makes the call's key of the function's arguments. Where it is not run `NotRun` is
        raised, or with `explain`, for a function that answers a model, its words are returned. Raises `ValueError` for
        a function whose arguments have no names, or an `effect` that names others.
        """

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            signature = _check_signature(function, effect)
            name = tool or function.__name__

            def prepare(args: Any, kwargs: Any) -> Call:
                bound = signature.bind(*args, **kwargs)
                bound.apply_defaults()
                given = dict(bound.arguments)
                own = None if key is None else key(*args, **kwargs)
                says = _describe(effect, given)
                return self.call(name, given, key=own, user=user, session=session, says=says, wait=wait)

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
            raise ValueError(
                f"`{function.__name__}` cannot be guarded: `{parameter}` has no name that people could read"
            )
    names = {name for _, name, _, _ in Formatter().parse(effect) if name is not None}
    if unknown := sorted(names - set(signature.parameters)):
        raise ValueError(f"the effect of `{function.__name__}` names `{unknown[0]}`, which is none of its arguments")
    return signature


def _describe(effect: str, args: Mapping[str, Any]) -> str:
    try:
        return effect.format_map(args)
    except (TypeError, ValueError):
        # A value that its format does not take, such as text for a number: people see the arguments themselves.
        return effect


def _result(call: Call, explain: bool) -> Any:
    has_run = bool(call) or (call.state == "ended" and call.status.code == "ok")
    if explain and (call.is_edited or not has_run):
        return call.text
    if has_run:
        return call.result
    raise NotRun(call)
