"""Starts a turn, approves its request, and prints the answer, from your own program."""

import asyncio

from signoff import Client


async def main() -> str:
    """Return the turn's answer.

    In development, `signoff dev` runs in the directory of this program, and you name the acting people. In production,
    SIGNOFF_PUBLIC_URL and SIGNOFF_TOKEN name the gateway and you: leave `user` and `by` out.
    """
    async with await Client.connect() as client:
        turn = await client.start("book the 420 euro flight to Lisbon", user="guest")
        async for request in turn.pending():
            receipt = await client.approve(request, by="approver", reason="agreed by phone")
            print(receipt.status, request.card.effect)
        return (await turn.result()).text


if __name__ == "__main__":
    print(asyncio.run(main()))
