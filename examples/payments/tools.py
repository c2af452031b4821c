"""The tools: plain typed functions. signoff.yaml names their approvers."""

from typing import Annotated, Any

from pydantic import Field

from payments.ledger import ledger
from signoff import ToolContext

Amount = Annotated[float, Field(gt=0)]


async def release_payment(
    invoice: str, payee: str, amount: Amount, ctx: ToolContext, currency: str = "EUR"
) -> dict[str, Any]:
    """Pay an invoice.

    Args:
        invoice: The invoice's number.
        payee: The recipient of the payment.
        amount: The amount of the payment.
        currency: Currency of the amount, three letters.
    """
    async with ledger() as bank:
        await bank.execute(
            "INSERT OR IGNORE INTO payments (idempotency_key, invoice, payee, amount, currency) VALUES (?, ?, ?, ?, ?)",
            (ctx.idempotency_key, invoice, payee, amount, currency),
        )
        await bank.commit()
        rows = list(
            await bank.execute_fetchall("SELECT * FROM payments WHERE idempotency_key = ?", (ctx.idempotency_key,))
        )
    row = dict(rows[0])
    return {name: row[name] for name in ("payment", "invoice", "payee", "amount", "currency")}


async def top_up(office: str, amount: Amount, ctx: ToolContext) -> dict[str, Any]:
    """Top up an office's petty cash.

    Args:
        office: The office.
        amount: How much, in EUR.
    """
    async with ledger() as bank:
        await bank.execute(
            "INSERT OR IGNORE INTO top_ups (idempotency_key, office, amount) VALUES (?, ?, ?)",
            (ctx.idempotency_key, office, amount),
        )
        await bank.commit()
    return {"office": office, "amount": amount}
