"""Calls of language models behind OpenAI-compatible HTTP endpoints: paced, retried, journalled, counted, budgeted.

``ModelCalls`` (in ``calls``) is what a stage opens once and hands to engine, environment and judge; ``chat`` asks one
chat completion through it. Not here: prompts, and what an answer means.
"""
