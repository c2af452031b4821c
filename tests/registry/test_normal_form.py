import os
import subprocess
import sys
from pathlib import Path

from registry_kit import a_tool, an_actor

from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.normal_form import normal_form, normal_text

MANIFEST = """\
version: 1
path: [CODE]
defaults: {model: "scripted:x:y", approvers: [role:finance]}
context: {user.costCentre: {type: string}, project: {type: integer}}
people:
  - {id: ana, roles: [finance, board], attributes: {costCentre: "4711"}}
actors:
  desk: {tools: [pay], limits: {cost: 2.5}, modelSettings: {temperature: 0.5, seed: 7}, tags: [b, a]}
  other: {}
tools:
  pay:
    handler: normal_form_tools:pay
    scope: generalist
    tags: [money, "\\u00fcber"]
    inputSchema:
      {type: object, properties: {to: {type: string}, sum: {type: number, minimum: 1.0}}, required: [to, sum]}
    requiresApproval: {autoApproveIf: "args.sum < 20.0", timeout: 8h, quorum: 2}
policies:
  - {name: frozen, rule: "'ice' in tool.tags", effect: deny}
"""
CODE = '''
async def pay(args, context):
    """Pay."""
'''
HASH = "c84169e29ae31a57055268e0bb83362e222487e7e2f7d6c5d0118785a0c31aac"
"""The recorded hash of the manifest above. A different value means that the hash of every catalog changed."""
PRINT = """\
import sys
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.normal_form import normal_text
sys.stdout.buffer.write(normal_text(load_manifest(sys.argv[1])).encode())
"""


def written(folder: Path, text: str = MANIFEST) -> Path:
    (folder / "normal_form_tools.py").write_text(CODE)
    path = folder / "signoff.yaml"
    path.write_text(text.replace("CODE", f"'{folder}'"))
    return path


def test_hash_equals_the_recorded_one(tmp_path: Path) -> None:
    assert load_manifest(written(tmp_path)).hash == HASH


def test_normal_form_is_byte_identical_in_every_process(tmp_path: Path) -> None:
    forms = set()
    for seed in ("0", "4711"):
        folder = tmp_path / seed
        folder.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", PRINT, str(written(folder))],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            timeout=60,
            check=True,
        )
        forms.add(done.stdout.decode())
    (form,) = forms
    assert f'"hash": "{HASH}"' in form
    assert str(tmp_path) not in form
    assert form == normal_text(load_manifest(written(tmp_path)))


def test_normal_form_ignores_spelling_order_and_comments(tmp_path: Path) -> None:
    other = MANIFEST.replace("requiresApproval", "requires_approval").replace("8h", "28800").replace("1.0,", "1,")
    head, tools, policies = other.partition("tools:\n  pay")[0], "tools:\n  pay", other.partition("tools:\n  pay")[2]
    tool, _, rules = policies.partition("policies:\n")
    moved = f"# words\n{head}policies:\n{rules}{tools}{tool}"
    assert moved != MANIFEST
    one = normal_text(load_manifest(written(tmp_path)))
    assert normal_text(load_manifest(written(tmp_path, moved))) == one


def test_normal_form_holds_declared_values_and_no_defaults(tmp_path: Path) -> None:
    form = normal_form(load_manifest(written(tmp_path)))
    pay = form["tools"]["pay"]
    assert pay["handler"] == "normal_form_tools:pay"
    assert pay["requires_approval"] == {"auto_approve_if": "args.sum < 20.0", "quorum": 2, "timeout": 28_800.0}
    assert set(pay) == {*("definition", "description", "handler", "input_schema", "requires_approval", "scope", "tags")}
    assert form["actors"]["other"] == {"model": "scripted:x:y"}
    assert form["people"] == {
        "main/ana": {"id": "ana", "roles": ["finance", "board"], "attributes": {"costCentre": "4711"}}
    }


def test_callable_objects_are_written_by_their_class() -> None:
    class Handler:
        async def __call__(self, args: object, context: object) -> None:
            """Nothing."""

    def made() -> Catalog:
        tool = a_tool(handler=Handler(), requires_approval=ApprovalPolicy(level="admin"))
        return build_catalog(tools=[tool], actors=[an_actor()])

    assert normal_text(made()) == normal_text(made())
    assert "0x" not in normal_text(made())
    assert "Handler" in normal_form(made())["tools"]["book_flight"]["handler"]
