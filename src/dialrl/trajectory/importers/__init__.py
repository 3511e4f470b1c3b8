"""Dialogues from elsewhere as trajectory files. Importing this package loads nothing; see ``empa`` and ``turns``."""
