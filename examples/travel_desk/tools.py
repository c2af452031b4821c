"""The desk's tools: plain typed functions. signoff.yaml decides which calls need approval."""

import asyncio
import os
from typing import Annotated, Any, Final

from pydantic import Field

from signoff import ToolContext, ToolFailure
from travel_desk.desk import booking_name, booking_number, books

SLEEP_AFTER_WRITE: Final = "TRAVEL_DESK_SLEEP_AFTER_WRITE"
"""Environment variable: seconds that booking and cancelling sleep after the write, for a kill in between."""

Price = Annotated[float, Field(ge=0)]


async def flight_search(
    destination: str, max_price: Annotated[Price | None, Field(alias="maxPrice")] = None
) -> list[dict[str, Any]]:
    """Find journeys to a city, cheapest first.

    Args:
        destination: The city to go to.
        max_price: The most it may cost, in EUR.
    """
    async with books() as database:
        rows = await database.execute_fetchall(
            "SELECT * FROM flights WHERE destination = ? COLLATE NOCASE AND price <= ? ORDER BY price",
            (destination.strip(), float("inf") if max_price is None else max_price),
        )
    return [dict(row) for row in rows]


async def book_flight(
    flight: str,
    destination: str,
    total_cost: Annotated[Price, Field(alias="totalCost")],
    passenger: str,
    ctx: ToolContext,
    currency: str = "EUR",
) -> dict[str, Any]:
    """Book one seat on a flight that a search found.

    Args:
        flight: The flight's number.
        destination: The destination city.
        total_cost: The total cost.
        passenger: The passenger.
        currency: Currency of the cost, three letters.
    """
    async with books() as database:
        await database.execute(
            "INSERT OR IGNORE INTO bookings (idempotency_key, flight, destination, passenger, total, currency)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (ctx.idempotency_key, flight, destination, passenger, total_cost, currency),
        )
        await database.commit()
        await _pause()
        rows = list(
            await database.execute_fetchall("SELECT * FROM bookings WHERE idempotency_key = ?", (ctx.idempotency_key,))
        )
    row = dict(rows[0])
    shown = {name: row[name] for name in ("flight", "destination", "passenger", "total", "currency", "state")}
    return {"booking": booking_name(row["booking"]), **shown}


async def cancel_booking(booking: str) -> dict[str, Any] | ToolFailure:
    """Cancel a booking for good.

    Args:
        booking: The booking, such as TD-7.
    """
    async with books() as database:
        cursor = await database.execute(
            "UPDATE bookings SET state = 'cancelled' WHERE booking = ? AND state = 'booked'", (booking_number(booking),)
        )
        # Each run leaves a row: this must not happen twice.
        await database.execute("INSERT INTO cancellations (booking) VALUES (?)", (booking_number(booking),))
        await database.commit()
        await _pause()
    if cursor.rowcount == 0:
        return ToolFailure(f"there is no booking {booking} that could be cancelled")
    return {"booking": booking, "state": "cancelled"}


async def refund(booking: str, amount: Annotated[float, Field(gt=0)], ctx: ToolContext) -> dict[str, Any] | ToolFailure:
    """Pay money back for a cancelled booking.

    Args:
        booking: The booking, such as TD-7.
        amount: How much to pay back, in EUR.
    """
    number = booking_number(booking)
    async with books() as database:
        rows = list(await database.execute_fetchall("SELECT total, state FROM bookings WHERE booking = ?", (number,)))
        if not rows or rows[0]["state"] != "cancelled" or amount > rows[0]["total"]:
            return ToolFailure(f"booking {booking} is not cancelled, or cost less than {amount:.2f} EUR")
        await database.execute(
            "INSERT OR IGNORE INTO refunds (idempotency_key, booking, amount) VALUES (?, ?, ?)",
            (ctx.idempotency_key, number, amount),
        )
        await database.commit()
    return {"booking": booking, "refunded": amount}


async def _pause() -> None:
    await asyncio.sleep(float(os.environ.get(SLEEP_AFTER_WRITE) or 0))
