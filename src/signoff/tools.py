"""Names for authors of tools: registries, hooks, parts of previews, results, reducers and handler signatures."""

from typing import TYPE_CHECKING

from signoff.formats.lazy_names import lazy_names

if TYPE_CHECKING:
    from signoff.activities.hooks.built_in_previews import preview_file_write as preview_file_write
    from signoff.activities.hooks.built_in_previews import preview_sql as preview_sql
    from signoff.activities.hooks.policy_decision_point import PolicyDecisionPoint as PolicyDecisionPoint
    from signoff.contracts.preview import Code as Code
    from signoff.contracts.preview import Diff as Diff
    from signoff.contracts.preview import Email as Email
    from signoff.contracts.preview import File as File
    from signoff.contracts.preview import Image as Image
    from signoff.contracts.preview import Markdown as Markdown
    from signoff.contracts.preview import PreviewPart as PreviewPart
    from signoff.contracts.preview import Sql as Sql
    from signoff.contracts.preview import Table as Table
    from signoff.contracts.preview import Text as Text
    from signoff.contracts.usage import UsageLimit as UsageLimit
    from signoff.formats.json_schema import SchemaProblem as SchemaProblem
    from signoff.policy.handler_verdict import HandlerCall as HandlerCall
    from signoff.policy.handler_verdict import HandlerVerdict as HandlerVerdict
    from signoff.registry.actor import Step as Step
    from signoff.registry.capabilities import Capabilities as Capabilities
    from signoff.registry.handler_adapters import context_first as context_first
    from signoff.registry.handler_adapters import ok_results as ok_results
    from signoff.registry.handler_adapters import per_call as per_call
    from signoff.registry.handler_adapters import success_results as success_results
    from signoff.registry.hooks import CannotTell as CannotTell
    from signoff.registry.hooks import Correction as Correction
    from signoff.registry.hooks import DidNotHappen as DidNotHappen
    from signoff.registry.hooks import Happened as Happened
    from signoff.registry.hooks import HookContext as HookContext
    from signoff.registry.hooks import Permission as Permission
    from signoff.registry.hooks import ProbeAnswer as ProbeAnswer
    from signoff.registry.program.tool_keywords import BypassRouting as BypassRouting
    from signoff.registry.registry import ToolRegistry as ToolRegistry
    from signoff.registry.registry import ToolRegistryBuilder as ToolRegistryBuilder
    from signoff.registry.registry import ToolResolver as ToolResolver
    from signoff.registry.registry import create_tool_registry as create_tool_registry
    from signoff.registry.results.destinations import Delivery as Delivery
    from signoff.registry.results.destinations import DeliveryFailure as DeliveryFailure
    from signoff.registry.results.reducers import BUILT_IN as BUILT_IN
    from signoff.registry.results.reducers import ReducerRegistry as ReducerRegistry
    from signoff.registry.results.reducers import ToolReducer as ToolReducer
    from signoff.registry.tool_result import AnnotatedRecord as AnnotatedRecord
    from signoff.registry.tool_result import Annotations as Annotations
    from signoff.registry.tool_result import RecordField as RecordField
    from signoff.registry.tool_result import ReducerInput as ReducerInput
    from signoff.registry.tool_result import Result as Result

_MODULES = {
    "AnnotatedRecord": "signoff.registry.tool_result",
    "Annotations": "signoff.registry.tool_result",
    "HandlerVerdict": "signoff.policy.handler_verdict",
    "BUILT_IN": "signoff.registry.results.reducers",
    "BypassRouting": "signoff.registry.program.tool_keywords",
    "Capabilities": "signoff.registry.capabilities",
    "CannotTell": "signoff.registry.hooks",
    "Correction": "signoff.registry.hooks",
    "Delivery": "signoff.registry.results.destinations",
    "DidNotHappen": "signoff.registry.hooks",
    "Happened": "signoff.registry.hooks",
    "HookContext": "signoff.registry.hooks",
    "Permission": "signoff.registry.hooks",
    "PolicyDecisionPoint": "signoff.activities.hooks.policy_decision_point",
    "ProbeAnswer": "signoff.registry.hooks",
    "HandlerCall": "signoff.policy.handler_verdict",
    "RecordField": "signoff.registry.tool_result",
    "ReducerInput": "signoff.registry.tool_result",
    "ReducerRegistry": "signoff.registry.results.reducers",
    "Result": "signoff.registry.tool_result",
    "SchemaProblem": "signoff.formats.json_schema",
    "Step": "signoff.registry.actor",
    "ToolReducer": "signoff.registry.results.reducers",
    "ToolRegistry": "signoff.registry.registry",
    "ToolRegistryBuilder": "signoff.registry.registry",
    "ToolResolver": "signoff.registry.registry",
    "DeliveryFailure": "signoff.registry.results.destinations",
    "UsageLimit": "signoff.contracts.usage",
    "Code": "signoff.contracts.preview",
    "Diff": "signoff.contracts.preview",
    "Email": "signoff.contracts.preview",
    "File": "signoff.contracts.preview",
    "Image": "signoff.contracts.preview",
    "Markdown": "signoff.contracts.preview",
    "PreviewPart": "signoff.contracts.preview",
    "Sql": "signoff.contracts.preview",
    "Table": "signoff.contracts.preview",
    "Text": "signoff.contracts.preview",
    "context_first": "signoff.registry.handler_adapters",
    "create_tool_registry": "signoff.registry.registry",
    "preview_file_write": "signoff.activities.hooks.built_in_previews",
    "preview_sql": "signoff.activities.hooks.built_in_previews",
    "ok_results": "signoff.registry.handler_adapters",
    "per_call": "signoff.registry.handler_adapters",
    "success_results": "signoff.registry.handler_adapters",
}
__all__ = [*_MODULES]
__getattr__ = lazy_names(__name__, _MODULES)
