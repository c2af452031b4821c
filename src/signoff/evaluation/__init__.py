"""Evaluates the effect of new instructions, policies, tools or models on past turns.

A case has the messages, calls, answers and decisions of a finished turn. A worker's gates judge it again, with its own
answers. No tools run, no approvers are asked, and no store or server is needed. Pure.
"""
