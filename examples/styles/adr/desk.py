"""The tools of the desk, and the registry of them."""

from travel_desk import tools

from signoff import ApprovalPolicy
from signoff.tools import ToolRegistry, from_function

trusted = ApprovalPolicy(auto_approve_if="args.totalCost < 50 && ctx.user.tier == 'trusted'")
small = ApprovalPolicy(deny_if="args.amount > 100.0")

search = from_function(tools.flight_search, scope="generalist", read_only=True)
book = from_function(tools.book_flight, scope="generalist", requires_approval=trusted)
cancel = from_function(tools.cancel_booking, scope="generalist", requires_approval=True)
refund = from_function(tools.refund, scope="generalist", requires_approval=small)
registry = ToolRegistry([search, book, cancel, refund])
