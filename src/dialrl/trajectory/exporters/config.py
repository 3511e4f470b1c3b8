"""Configuration of ``dialrl export``. Not here: the formats."""

from typing import Literal

from dialrl.config import StageConfig, operational, semantic

Target = Literal["jsonl", "trl", "verl", "sft", "dpo"]
Measure = Literal["return", "reward", "advantage", "gain"]


class ExportConfig(StageConfig):
    """Which dialogues go out, and by what they and their turns are ranked."""

    dialogues: tuple[str, ...] = semantic((), help="Only these dialogues (group_id/sample) or groups. Repeatable.")
    end_reasons: tuple[str, ...] = semantic((), help="Only dialogues that ended so, for example success. Repeatable.")
    best: int | None = semantic(None, ge=1, help="Only the N best dialogues of each group; none: all.")
    by: Measure | None = semantic(
        None, help="What ranks dialogues and turns; none: the first of return, reward and gain that the file has."
    )
    until: Literal["stop", "end"] = semantic("stop", help="stop: turns after stop_turn are left out; not in jsonl.")
    pairs: Literal["best-worst", "all"] = semantic("best-worst", help="dpo: pairs made of the replies to one context.")
    min_gap: float = semantic(0.0, ge=0.0, help="dpo: by how much more the chosen reply must be worth.")
    split: str = semantic("train", help="verl: the split named in extra_info.")
    batch_rows: int = operational(20_000, ge=1, help="Rows held in memory at a time (whole groups).")
