"""Start a turn, approve what it asks, and print what came of it, from one's own program."""

import asyncio

from signoff import Client


async def main() -> str:
    """What the turn answered.

    In development `signoff dev` runs in the folder of this program, and one says who acts. In production
    SIGNOFF_PUBLIC_URL and SIGNOFF_TOKEN say where the gateway is and who one is: leave `user` and `by` out.
    """
    async with await Client.connect() as client:
        turn = await client.start("book the 420 euro flight to Lisbon", user="guest")
        async for request in turn.pending():
            receipt = await client.approve(request, by="approver", reason="agreed by phone")
            print(receipt.status, request.card.effect)
        return (await turn.result()).text


if __name__ == "__main__":
    print(asyncio.run(main()))
