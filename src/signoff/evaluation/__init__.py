"""Evaluates the effect of new instructions, policies, tools or models on past turns.

A worker's gates judge a finished turn's calls again, with its own answers. No tools run, no approvers are asked, and no
store or server is needed. Pure.
"""
