"""The desk's tools and their registry."""

from travel_desk import tools

from signoff import ApprovalPolicy, tool
from signoff.tools import ToolRegistry

trusted = ApprovalPolicy(auto_approve_if="args.totalCost < 50 && ctx.user.tier == 'trusted'")
small = ApprovalPolicy(deny_if="args.amount > 100.0")

search = tool(scope="generalist", read_only=True)(tools.flight_search)
book = tool(scope="generalist", requires_approval=trusted)(tools.book_flight)
cancel = tool(scope="generalist", requires_approval=True)(tools.cancel_booking)
refund = tool(scope="generalist", requires_approval=small)(tools.refund)
registry = ToolRegistry([search, book, cancel, refund])
