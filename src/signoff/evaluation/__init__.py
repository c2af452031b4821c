"""Evaluation of what a change of instructions, policies, tools or models does to turns of the past.

A case holds what a finished turn said, proposed, was answered and decided; it is played again by the gates that a
worker has, with its own answers. Nothing runs, nobody is asked, and no store or server is needed. Pure.
"""
