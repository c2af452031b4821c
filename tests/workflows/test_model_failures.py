"""What becomes of a turn whose model does not answer, answers with nothing, or fails with a mistake of its driver."""

import pytest
from failures import Failure
from turn_fixtures import TurnRig

from signoff.cli.terminal.tables import answer_lines
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.errors import ModelUnavailable
from signoff.contracts.turn import TurnResult
from signoff.testing.scripted_model import ScriptedModel, respond, say


def busy(request: CompletionRequest) -> Completion:
    """A provider that is out of capacity."""
    raise ModelUnavailable("the model's provider answered 503", retry_after=60)


@pytest.mark.failure("the model is asked again, try ...")
async def test_a_view_shows_that_the_model_is_asked_again(turn_rig: TurnRig, failure: Failure) -> None:
    answers = [busy, busy, lambda request: respond("done")]
    model = ScriptedModel(lambda request: answers.pop(0)(request))
    async with turn_rig.running([], model) as turns:
        waits, stopped = await turns.start(), await turns.start()
        views = [await turns.until(key, lambda view: view.model_retry is not None) for key in (waits, stopped)]
        failure.assert_seen("\n".join(str(line) for line in answer_lines(views[0])))
        failure.follow("Wait", "signoff cancel")
        await turns.signoff.cancel_turn(stopped)
        await turns.forward(waits, minutes=2)
        results = [await turns.signoff.result(key) for key in (waits, stopped)]
    retries = [view.model_retry for view in views if view.model_retry is not None]
    assert [(each.attempt, each.error) for each in retries] == [(2, "the model's provider answered 503")] * 2
    assert all(each.next_at is not None for each in retries)
    assert [result.state for result in results] == ["complete", "cancelled"]


@pytest.mark.failure("it was asked again for ten minutes")
async def test_a_turn_whose_model_never_answers_says_so(turn_rig: TurnRig, failure: Failure) -> None:
    answering = [busy]
    model = ScriptedModel(lambda request: answering[-1](request))
    async with turn_rig.running([], model) as turns:
        key = await turns.start()
        await turns.until(key, lambda view: view.model_retry is not None)
        await turns.forward(key, minutes=11)
        result = await turns.signoff.result(key)
        assert result.error is not None
        failure.assert_seen(result.error.message)
        failure.follow("Ask again once it answers")
        answering.append(lambda request: respond("done"))
        again = await turns.signoff.result(await turns.start())
    assert (result.state, result.error.code, again.state) == ("error", "model_unavailable", "complete")
    assert result.error.message.startswith("the model's provider answered 503; it was asked again for ten minutes")


async def ended(turn_rig: TurnRig, *script: Completion | Exception) -> TurnResult:
    asked = 0

    def react(request: CompletionRequest) -> Completion:
        nonlocal asked
        answer = script[min(asked, len(script) - 1)]
        asked += 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with turn_rig.running([], ScriptedModel(react)) as turns:
        return await turns.signoff.result(await turns.start())


async def test_a_model_that_answers_with_nothing_is_asked_once_more(turn_rig: TurnRig) -> None:
    result = await ended(turn_rig, say(" \n"), respond("done"))
    assert (result.state, result.completions) == ("complete", 1)
    assert result.usage == say("").usage + respond("done").usage


async def test_a_model_that_has_nothing_to_say_twice_ends_the_turn_in_words(turn_rig: TurnRig) -> None:
    result = await ended(turn_rig, say(""))
    assert (result.state, result.parts) == ("error", ())
    assert result.error is not None
    assert result.error.code == "model_refused"
    assert "answered twice with nothing" in result.error.message


async def test_a_mistake_in_a_script_ends_the_turn_at_once(turn_rig: TurnRig, caplog: pytest.LogCaptureFixture) -> None:
    # An exception that no driver may raise is a mistake in its code: named, without its words, and not tried again. The
    # worker's log says where it was, without them as well.
    result = await ended(turn_rig, ZeroDivisionError("the secret is 7"))
    assert result.error is not None
    assert (result.state, result.error.code) == ("error", "model_refused")
    assert "failed with ZeroDivisionError" in result.error.message
    assert "secret" not in result.error.message
    assert "failed: ZeroDivisionError" in caplog.text
    assert "the secret is 7" not in caplog.text


async def test_a_connection_that_breaks_is_tried_again(turn_rig: TurnRig) -> None:
    result = await ended(turn_rig, ConnectionResetError("gone"), respond("done"))
    assert (result.state, result.completions) == ("complete", 1)
