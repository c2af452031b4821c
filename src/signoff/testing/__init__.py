"""Public fakes for tests and demonstrations without keys, and the conformance suite of channels. Patches nothing."""

from typing import TYPE_CHECKING

from signoff.formats.lazy_names import lazy_names

if TYPE_CHECKING:
    from signoff.contracts.completion import Completion as Completion
    from signoff.contracts.completion import CompletionRequest as CompletionRequest
    from signoff.contracts.content import text_of as text_of
    from signoff.contracts.message import ResultPart as ResultPart
    from signoff.policy.cases import run_cases as run_cases
    from signoff.testing.builders import a_call_context as a_call_context
    from signoff.testing.builders import a_decision as a_decision
    from signoff.testing.builders import a_request as a_request
    from signoff.testing.builders import a_tool_context as a_tool_context
    from signoff.testing.channels import ChannelSuite as ChannelSuite
    from signoff.testing.execution import available_tools as available_tools
    from signoff.testing.execution import execute_parallel as execute_parallel
    from signoff.testing.execution import offered_definitions as offered_definitions
    from signoff.testing.scripted_model import ScriptedModel as ScriptedModel
    from signoff.testing.scripted_model import calls as calls
    from signoff.testing.scripted_model import last_user_text as last_user_text
    from signoff.testing.scripted_model import respond as respond
    from signoff.testing.scripted_model import results as results
    from signoff.testing.scripted_model import say as say
    from signoff.testing.scripted_model import steps as steps
    from signoff.testing.vendor import HTTP_TROUBLES as HTTP_TROUBLES
    from signoff.testing.vendor import Vendor as Vendor
    from signoff.testing.vendor import VendorCard as VendorCard
    from signoff.testing.vendor_server import serve_vendor as serve_vendor

_MODULES = {
    "HTTP_TROUBLES": "signoff.testing.vendor",
    "ChannelSuite": "signoff.testing.channels",
    "Completion": "signoff.contracts.completion",
    "CompletionRequest": "signoff.contracts.completion",
    "ResultPart": "signoff.contracts.message",
    "ScriptedModel": "signoff.testing.scripted_model",
    "VendorCard": "signoff.testing.vendor",
    "Vendor": "signoff.testing.vendor",
    "a_call_context": "signoff.testing.builders",
    "a_decision": "signoff.testing.builders",
    "a_request": "signoff.testing.builders",
    "a_tool_context": "signoff.testing.builders",
    "calls": "signoff.testing.scripted_model",
    "available_tools": "signoff.testing.execution",
    "execute_parallel": "signoff.testing.execution",
    "offered_definitions": "signoff.testing.execution",
    "last_user_text": "signoff.testing.scripted_model",
    "run_cases": "signoff.policy.cases",
    "respond": "signoff.testing.scripted_model",
    "results": "signoff.testing.scripted_model",
    "say": "signoff.testing.scripted_model",
    "serve_vendor": "signoff.testing.vendor_server",
    "steps": "signoff.testing.scripted_model",
    "text_of": "signoff.contracts.content",
}
__all__ = [*_MODULES]
__getattr__ = lazy_names(__name__, _MODULES)
