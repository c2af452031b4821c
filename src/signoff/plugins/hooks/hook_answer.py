"""Makes the answers that Claude Code and Codex read: whether a call may run, with which arguments, and why not."""

from typing import Any, Final

from signoff.contracts.canonical_json import same_arguments
from signoff.contracts.responses import CallAnswer
from signoff.plugins.hooks.hook_event import HookBody, HookHost

HookAnswer = dict[str, Any]
"""The object that a hook answers; an empty one says nothing."""
SILENT: Final[HookAnswer] = {}
USED_WORDS: Final = "Not run: the permit of this call was used before. Call it again to ask anew."
_AGAIN: Final = "Call it again with the same arguments to go on waiting; nothing was run."


def allow(host: HookHost, event: HookBody, permit: CallAnswer) -> HookAnswer:
    """Says that the call may run, with the arguments of `permit` where they are others."""
    args = permit.args or {}
    changed = not same_arguments(args, event.tool_input)
    if event.hook_event_name == "PermissionRequest":
        return _decide(event, {"behavior": "allow", **({"updatedInput": args} if changed else {})})
    if not changed and not permit.note:
        # Codex takes no bare yes: it would count the hook as failed. Without an answer it goes on by its own rules.
        return SILENT if host == "codex" else _permit(event, "allow")
    if not changed and host != "codex":
        return _permit(event, "allow", additionalContext=permit.note)
    editor = f"{permit.edited_by or 'Somebody'} changed the arguments before approving; it runs with those."
    note = "\n".join(filter(None, (editor if changed else "", permit.note)))
    return _permit(event, "allow", updatedInput=args, additionalContext=note)


def deny(event: HookBody, reason: str) -> HookAnswer:
    """Says that the call must not run, and why, for the model."""
    words = reason.strip() or "not allowed"
    if event.hook_event_name == "PermissionRequest":
        return _decide(event, {"behavior": "deny", "message": words})
    return _permit(event, "deny", permissionDecisionReason=words)


def defer(event: HookBody, call: CallAnswer) -> HookAnswer:
    """Says that the run shall end here and ask again when it is resumed; for Claude Code's `-p` alone."""
    return _permit(event, "defer", permissionDecisionReason=wait_words(call))


def can_edit(host: HookHost, event: HookBody) -> bool:
    """Returns whether a call can be run with other arguments than were proposed."""
    return host != "codex" or event.hook_event_name != "PermissionRequest"


def wait_words(call: CallAnswer) -> str:
    """Writes for the model that people have not answered yet, and how to go on."""
    code = f" {call.code}" if call.code else ""
    where = f" ({call.page})" if call.page else ""
    return f"Not run: waiting for approval{code}{where}. {_AGAIN}"


def refusal_words(call: CallAnswer) -> str:
    """Writes for the model why a call that is settled must not be run by it."""
    match call.state:
        case "denied":
            by = f" by {call.by}" if call.source == "human" and call.by else ""
            without = "no reason given" if call.source in ("", "human") else call.source
            return f"Denied{by}: {call.reason or without}"
        case "used":
            return USED_WORDS
        case "ended":
            return f"Not run here: Signoff has this call's outcome already, {call.code}: {call.result}"
    return "Not run: this tool is run by Signoff itself, and not by you."


def _permit(event: HookBody, decision: str, **more: Any) -> HookAnswer:
    return _output(event, {"permissionDecision": decision, **more})


def _decide(event: HookBody, decision: dict[str, Any]) -> HookAnswer:
    return _output(event, {"decision": decision})


def _output(event: HookBody, output: dict[str, Any]) -> HookAnswer:
    return {"hookSpecificOutput": {"hookEventName": event.hook_event_name, **output}}
