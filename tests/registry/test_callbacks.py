from typing import Any

import pytest
from call_rig import refund_tool
from tables import table

from signoff.contracts.call import Callback, WorkflowSignal
from signoff.contracts.errors import ConfigError
from signoff.registry.actor import Actor, Callbacks, ExternalAgent
from signoff.registry.catalog import build_catalog

ALLOWED = Callbacks(
    urls=("https://jobs.example.com/hooks/", "https://jobs.example.com/one"),
    secret="env:S",
    workflows=("order-*", "nightly"),
    signals=("signoff.call", "resume"),
)


@table(
    ("url", "allowed"),
    ("https://jobs.example.com/hooks/run-7", True),
    ("https://jobs.example.com/hooks/a/b?token=x", True),
    ("https://jobs.example.com/one", True),
    ("https://jobs.example.com/one/two", False),
    ("https://jobs.example.com/one?x=1", False),
    ("https://jobs.example.com/hooks", False),
    ("https://jobs.example.com/other", False),
    ("https://jobs.example.com.evil.com/hooks/x", False),
    ("https://jobs.example.com@evil.com/hooks/x", False),
    ("https://jobs.example.com:8443/hooks/x", False),
    ("http://jobs.example.com/hooks/x", False),
    ("HTTPS://jobs.example.com/hooks/x", False),
    ("https://jobs.example.com/hooks/../admin", False),
    ("https://jobs.example.com/hooks/./x", False),
    ("https://jobs.example.com/hooks/%2e%2E/admin", False),
    ("https://jobs.example.com/hooks/..%2fadmin", False),
    ("https://jobs.example.com/hooks/..\\admin", False),
    ("https://jobs.example.com/hooks/x#y", False),
    ("https://jobs.example.com/hooks/x\ny", False),
    ("https://jobs.example.com/hooks/ä", False),
    ("", False),
)
def test_callback_address_must_be_declared_or_below_a_declared_one(url: str, allowed: bool) -> None:
    assert ALLOWED.allows(Callback(url=url)) is allowed


@table(
    ("workflow", "signal", "allowed"),
    ("order-7", "signoff.call", True),
    ("nightly", "resume", True),
    ("nightly-2", "resume", False),
    ("order-7", "cancel", False),
    ("other", "signoff.call", False),
    ("turn/main/s/t", "signoff.call", False),
    ("session/main/s", "signoff.call", False),
)
def test_callback_workflow_must_be_declared(workflow: str, signal: str, allowed: bool) -> None:
    assert ALLOWED.allows(Callback(workflow=WorkflowSignal(id=workflow, signal=signal))) is allowed


@table(
    ("fields", "words"),
    ({"urls": ("https://jobs.example.com",)}, "with a path"),
    ({"urls": ("https://a@jobs.example.com/",)}, "with a path"),
    ({"urls": ("ftp://jobs.example.com/",)}, "with a path"),
    ({"urls": ("https://jobs.example.com/",)}, "without a `secret`"),
    ({"urls": ("https://jobs.example.com/",), "secret": "whsec_abc"}, "has a secret in"),
    ({"workflows": ("*",)}, "ids of your own"),
    ({"workflows": ("turn/main/*",)}, "ids of your own"),
    ({"allow_networks": ("here",)}, "networks such as"),
)
def test_invalid_callback_declaration_is_an_error_at_start(fields: dict[str, Any], words: str) -> None:
    agent = ExternalAgent(acts_for=("user:guest",), callbacks=Callbacks(**fields))
    with pytest.raises(ConfigError, match=words):
        build_catalog(tools=[refund_tool()], actors=[Actor(name="coder", model="", external=agent)])
