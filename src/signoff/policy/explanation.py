"""Explains a verdict as text and as JSON."""

from typing import Any

from signoff.policy.compiled_policy import PolicyVerdict


def explain_text(verdict: PolicyVerdict) -> str:
    lines = [f"{verdict.verdict}: {verdict.why}"]
    if verdict.rule_text:
        lines.append(f"rule: {verdict.rule.label}: {verdict.rule_text}")
    for answer in verdict.engines:
        note = f" ({answer.note})" if answer.note else ""
        lines.append(f"engine: {answer.engine} says {answer.kind} to {answer.rule}{note}")
    if verdict.verdict != "deny":
        lines += _terms(verdict)
    lines.append(f"policy: {verdict.policy_hash} by {verdict.evaluators}")
    return "\n".join(lines)


def _terms(verdict: PolicyVerdict) -> list[str]:
    terms = verdict.terms
    should = ", should a gate ask" if verdict.verdict == "auto" else ""
    lines = [f"approvers{should}: {', '.join(terms.approvers)}"] if terms.approvers else []
    if terms.quorum > 1:
        lines.append(f"people{should}: {terms.quorum}")
    lines += [f"group{should}: {group.quorum} of {' or '.join(group.of)}" for group in terms.groups]
    return [*lines, *(f"stricter{should}: {each.reason}" for each in terms.applied)]


def explain_json(verdict: PolicyVerdict) -> dict[str, Any]:
    """Use plain JSON types and the verdict's field names."""
    return {
        "verdict": verdict.verdict,
        "rule": verdict.rule.model_dump(mode="json"),
        "rule_text": verdict.rule_text,
        "why": verdict.why,
        "policy_hash": verdict.policy_hash,
        "evaluators": verdict.evaluators,
        "terms": verdict.terms.model_dump(mode="json"),
        "level": verdict.level,
        "engines": [
            {"rule": each.rule, "engine": each.engine, "kind": each.kind, "note": each.note} for each in verdict.engines
        ],
    }
