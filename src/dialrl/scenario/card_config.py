"""Settings of ``dialrl scenarios split``."""

from dialrl.config import StageConfig, semantic


class SplitConfig(StageConfig):
    """How cards are divided."""

    test_share: float = semantic(0.2, help="Share of each language that is kept for tests.", ge=0, le=1)
    seed: int = semantic(0, help="Seed of the draw.")
