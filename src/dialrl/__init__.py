"""Reinforcement learning of multi-turn dialogue policies, in stages that read and write Parquet trajectory files.

Importing this package loads nothing heavy: each stage is imported where it is used.
"""

__version__ = "0.1.0"
