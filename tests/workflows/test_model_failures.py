import pytest
from failures import Failure
from turn_fixtures import TurnRig

from signoff.cli.terminal.tables import answer_lines
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.errors import ModelUnavailable
from signoff.contracts.turn import TurnResult
from signoff.testing.scripted_model import ScriptedModel, respond, say


def busy(request: CompletionRequest) -> Completion:
    raise ModelUnavailable("the model's provider answered 503", retry_after=60)


@pytest.mark.failure("the model failed; next, try ...")
async def test_view_shows_model_retries(turn_rig: TurnRig, failure: Failure) -> None:
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


@pytest.mark.failure("retries for ten minutes failed")
async def test_unavailable_model_ends_the_turn_with_its_error(turn_rig: TurnRig, failure: Failure) -> None:
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
    assert result.error.message.startswith("the model's provider answered 503; retries for ten minutes failed")


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


async def test_empty_model_reply_is_asked_for_again(turn_rig: TurnRig) -> None:
    result = await ended(turn_rig, say(" \n"), respond("done"))
    assert (result.state, result.completions) == ("complete", 1)
    assert result.usage == say("").usage + respond("done").usage


async def test_second_empty_model_reply_ends_the_turn_with_an_error(turn_rig: TurnRig) -> None:
    result = await ended(turn_rig, say(""))
    assert (result.state, result.parts) == ("error", ())
    assert result.error is not None
    assert result.error.code == "model_refused"
    assert "answered twice with nothing" in result.error.message


async def test_unexpected_driver_exception_ends_the_turn_without_its_text(
    turn_rig: TurnRig, caplog: pytest.LogCaptureFixture
) -> None:
    # An unexpected exception is an error in the driver's code: the turn names its type without its text, and does not
    # retry. The worker's log shows the place, also without the text.
    result = await ended(turn_rig, ZeroDivisionError("the secret is 7"))
    assert result.error is not None
    assert (result.state, result.error.code) == ("error", "model_refused")
    assert "failed with ZeroDivisionError" in result.error.message
    assert "secret" not in result.error.message
    assert "failed: ZeroDivisionError" in caplog.text
    assert "the secret is 7" not in caplog.text


async def test_broken_model_connection_is_retried(turn_rig: TurnRig) -> None:
    result = await ended(turn_rig, ConnectionResetError("gone"), respond("done"))
    assert (result.state, result.completions) == ("complete", 1)
