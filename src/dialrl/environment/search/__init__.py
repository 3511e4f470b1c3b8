"""The environment ``search``: question answering with a search tool (docs/search.md).

``grammar`` reads a reply, ``retriever`` and its kind find passages, ``environment`` plays the dialogue. Not here:
questions (``dialrl.scenario.questions``), F1 (``dialrl.scenario.answers``).
"""
