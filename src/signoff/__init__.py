"""Signoff: durable human approval of agents' actions, on Temporal.

The public names are here and in `signoff.tools`, `signoff.people`, `signoff.channels` and `signoff.testing`. Other
modules are internal and may change at any time. Importing `signoff` loads no other module until a name is used.
"""

from typing import TYPE_CHECKING

from signoff.contracts.names import VERSION
from signoff.formats.lazy_names import lazy_names

__version__ = VERSION

if TYPE_CHECKING:
    from signoff.app import App as App
    from signoff.client.client import Client as Client
    from signoff.client.turn_handle import TurnHandle as TurnHandle
    from signoff.contracts.approval import ApprovalRequest as ApprovalRequest
    from signoff.contracts.audit import CloudEvent as CloudEvent
    from signoff.contracts.call import ToolDenied as ToolDenied
    from signoff.contracts.decision import Decision as Decision
    from signoff.contracts.decision import GrantRequest as GrantRequest
    from signoff.contracts.errors import BadRequest as BadRequest
    from signoff.contracts.errors import ConfigError as ConfigError
    from signoff.contracts.errors import Conflict as Conflict
    from signoff.contracts.errors import InDoubt as InDoubt
    from signoff.contracts.errors import ModelNotSetUp as ModelNotSetUp
    from signoff.contracts.errors import ModelRefused as ModelRefused
    from signoff.contracts.errors import ModelUnavailable as ModelUnavailable
    from signoff.contracts.errors import NotFound as NotFound
    from signoff.contracts.errors import Refused as Refused
    from signoff.contracts.errors import RegistrationError as RegistrationError
    from signoff.contracts.errors import SecretMissing as SecretMissing
    from signoff.contracts.errors import ServerUnavailable as ServerUnavailable
    from signoff.contracts.errors import SignoffError as SignoffError
    from signoff.contracts.errors import StoreUnavailable as StoreUnavailable
    from signoff.contracts.errors import Unavailable as Unavailable
    from signoff.contracts.receipt import Receipt as Receipt
    from signoff.policy.approval_policy import ApprovalPolicy as ApprovalPolicy
    from signoff.registry.catalog import Catalog as Catalog
    from signoff.registry.function import tool as tool
    from signoff.registry.manifest.loader import load_manifest as load_manifest
    from signoff.registry.program.declarations import DeclaredActor as DeclaredActor
    from signoff.registry.program.declarations import Tools as Tools
    from signoff.registry.tool import Tool as Tool
    from signoff.registry.tool_context import ToolContext as ToolContext
    from signoff.registry.tool_result import ToolFailure as ToolFailure
    from signoff.registry.tool_result import ToolResult as ToolResult

_MODULES = {
    "DeclaredActor": "signoff.registry.program.declarations",
    "App": "signoff.app",
    "Tools": "signoff.registry.program.declarations",
    "ApprovalPolicy": "signoff.policy.approval_policy",
    "ApprovalRequest": "signoff.contracts.approval",
    "Catalog": "signoff.registry.catalog",
    "BadRequest": "signoff.contracts.errors",
    "Client": "signoff.client.client",
    "CloudEvent": "signoff.contracts.audit",
    "ConfigError": "signoff.contracts.errors",
    "Conflict": "signoff.contracts.errors",
    "Decision": "signoff.contracts.decision",
    "GrantRequest": "signoff.contracts.decision",
    "InDoubt": "signoff.contracts.errors",
    "ModelNotSetUp": "signoff.contracts.errors",
    "ModelRefused": "signoff.contracts.errors",
    "ModelUnavailable": "signoff.contracts.errors",
    "NotFound": "signoff.contracts.errors",
    "Receipt": "signoff.contracts.receipt",
    "Refused": "signoff.contracts.errors",
    "RegistrationError": "signoff.contracts.errors",
    "SecretMissing": "signoff.contracts.errors",
    "ServerUnavailable": "signoff.contracts.errors",
    "SignoffError": "signoff.contracts.errors",
    "StoreUnavailable": "signoff.contracts.errors",
    "Tool": "signoff.registry.tool",
    "ToolContext": "signoff.registry.tool_context",
    "ToolDenied": "signoff.contracts.call",
    "ToolFailure": "signoff.registry.tool_result",
    "ToolResult": "signoff.registry.tool_result",
    "TurnHandle": "signoff.client.turn_handle",
    "Unavailable": "signoff.contracts.errors",
    "load_manifest": "signoff.registry.manifest.loader",
    "tool": "signoff.registry.function",
}
__all__ = ["__version__", *_MODULES]
__getattr__ = lazy_names(__name__, _MODULES)
