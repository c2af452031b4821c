"""Hooks: what is refused at build, in one form of words for every kind, and what counts as an answer."""

import functools
from typing import Any

from tables import table

from signoff.registry import hooks
from signoff.registry.hooks import Hook

KINDS = [each for each in vars(hooks).values() if isinstance(each, Hook)]
ONE = Hook[bool](field="one", takes=("args",))


async def one(args: Any) -> bool:
    """An asynchronous function of one argument."""
    return True


class Callable:
    """An object that is called like an asynchronous function."""

    async def __call__(self, args: Any) -> bool:
        return True


@table("function", one, functools.partial(one), Callable())
def test_whatever_is_awaited_with_its_arguments_is_a_hook(function: Any) -> None:
    assert ONE.objection(function) == ""


@table(
    ("function", "flaw"),
    ("one", "is no function"),
    (lambda args: True, "is not `async def`"),
    (functools.partial(one, 1), "does not take `(args)`"),
    (type("Never", (), {}), "is not `async def`"),
)
def test_what_is_no_hook_is_told_with_the_form_it_has_to_have(function: Any, flaw: str) -> None:
    assert ONE.problem(function) == flaw
    assert ONE.objection(function) == f"needs `one` to be `async def (args)`, but it {flaw}"
    assert ONE.objection(function, "routes.talk.one").startswith("needs `routes.talk.one` to be")


def test_a_plain_hook_is_not_async_and_some_are_either() -> None:
    """A pure hook that gave a coroutine would be taken for its answer; a policy's handler is run in a thread."""
    plain = Hook[bool](field="one", takes=("args",), style="plain")
    either = Hook[bool](field="one", takes=("args",), style="any")
    assert plain.problem(one) == "is `async def`"
    assert plain.problem(lambda args: True) == either.problem(lambda args: True) == either.problem(one) == ""


@table("kind", *KINDS, ids=lambda kind: kind.field)
def test_every_kind_refuses_a_function_without_its_arguments(kind: Hook[Any]) -> None:
    async def nothing() -> None: ...

    def nothing_either() -> None: ...

    assert kind.takes
    assert "does not take" in kind.problem(nothing_either if kind.style == "plain" else nothing)


@table("kind", *[kind for kind in KINDS if kind.parse is not ONE.parse], ids=lambda kind: kind.field)
def test_no_kind_takes_a_truthy_object_for_an_answer(kind: Hook[Any]) -> None:
    assert [kind.parse(returned) for returned in (object(), 1, "yes", None)] == [None] * 4
