"""The finished program of docs/tutorial.md: refunds with approval."""

import signoff

app = signoff.App(people="people.yaml")


@app.tool(
    effect="Refund {amount} EUR to {customer}",
    tags=["money"],
    requires_approval={
        "auto_approve_if": "args.amount <= 10.0",
        "deny_if": "args.amount > 1000.0",
        "terms": [{"when": "args.amount > 500.0", "quorum": 2, "reason": "more than 500 EUR"}],
        "edit": "approve",
        "require_reason": True,
        "notify": ["slack"],
    },
)
async def refund(customer: str, amount: float) -> str:
    """Refund a customer."""
    return f"refunded {amount:.2f} EUR to {customer}"


clerk = app.actor("clerk", model="openai:gpt-5", instructions="You help the staff of a shop.", tools=[refund])

ORDERS = {"A7": "Ana Sousa, 2 lamps, 80 EUR"}


@clerk.tool(read_only=True, justification="Only the clerk needs the orders of customers.")
def find_order(order: str) -> str:
    """Find an order by its number."""
    return ORDERS.get(order, f"no order {order}")


app.channel("slack", kind="slack", token="env:SLACK_TOKEN", app_token="env:SLACK_APP_TOKEN")

app.policy(
    "interns",
    "tool.tags.includes('money') && ctx.user.tier == 'intern'",
    effect="deny",
    reason="Interns do not move money.",
)

if __name__ == "__main__":
    app.run()
