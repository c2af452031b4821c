"""Tests refunds with the offline model. The test itself approves."""

import asyncio

from refunds import app


def test_refund_asks_above_10_euros_and_is_denied_above_1000() -> None:
    async def story() -> None:
        async with app.test() as test:
            small = await test.say("refund ana 9")
            assert (await small.result()).text == "refunded 9.00 EUR to ana"
            large = await test.say("refund ana 50")
            await test.approve(await large.request())
            assert "refunded 50.00 EUR to ana" in (await large.result()).text
            huge = await test.say("refund ana 5000")
            assert (await huge.result()).calls[0].code == "denied"

    asyncio.run(story())
