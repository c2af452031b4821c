import functools
from typing import Any

from tables import table

from signoff.registry import hooks
from signoff.registry.hooks import Hook

KINDS = [each for each in vars(hooks).values() if isinstance(each, Hook)]
ONE = Hook[bool](field="one", takes=("args",))


async def one(args: Any) -> bool:
    return True


class Callable:
    async def __call__(self, args: Any) -> bool:
        return True


@table("function", one, functools.partial(one), Callable())
def test_async_callable_with_its_arguments_is_a_hook(function: Any) -> None:
    assert ONE.objection(function) == ""


@table(
    ("function", "flaw"),
    ("one", "is no function"),
    (lambda args: True, "is not `async def`"),
    (functools.partial(one, 1), "does not take `(args)`"),
    (type("Never", (), {}), "is not `async def`"),
)
def test_invalid_hook_error_states_the_expected_form(function: Any, flaw: str) -> None:
    assert ONE.problem(function) == flaw
    assert ONE.objection(function) == f"needs `one` to be `async def (args)`, but it {flaw}"
    assert ONE.objection(function, "routes.talk.one").startswith("needs `routes.talk.one` to be")


def test_plain_hook_must_be_sync_and_some_kinds_accept_both() -> None:
    """The coroutine of a plain hook would count as its answer. A policy handler runs in a thread."""
    plain = Hook[bool](field="one", takes=("args",), style="plain")
    either = Hook[bool](field="one", takes=("args",), style="any")
    assert plain.problem(one) == "is `async def`"
    assert plain.problem(lambda args: True) == either.problem(lambda args: True) == either.problem(one) == ""


@table("kind", *KINDS, ids=lambda kind: kind.field)
def test_every_hook_kind_refuses_a_function_without_its_arguments(kind: Hook[Any]) -> None:
    async def nothing() -> None: ...

    def nothing_either() -> None: ...

    assert kind.takes
    assert "does not take" in kind.problem(nothing_either if kind.style == "plain" else nothing)


@table("kind", *[kind for kind in KINDS if kind.parse is not ONE.parse], ids=lambda kind: kind.field)
def test_hook_kinds_reject_truthy_objects_as_answers(kind: Hook[Any]) -> None:
    assert [kind.parse(returned) for returned in (object(), 1, "yes", None)] == [None] * 4
