"""A policy's belief in an answer: the mean log-prob of the answer's tokens at several places of a dialogue.

``gold`` turns answers into tokens, ``tree`` lays the places out for one forward, ``forward`` computes. Source:
docs/stages/judge-information-gain.md. Not here: files, rewards.
"""
