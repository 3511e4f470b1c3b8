"""Trajectory files as what other tools read: JSON lines, chat data for supervised learning, prompts, preferences."""
