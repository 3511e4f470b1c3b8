"""Configuration of ``dialrl returns``. Not here: what a channel computes (``channels``)."""

from typing import Literal, Self

from pydantic import model_validator

from dialrl.config import StageConfig, operational, semantic


class ReturnsConfig(StageConfig):
    """From judged turns to a reward and a discounted return a turn."""

    reward: tuple[str, ...] = semantic(
        ("incremental-distance",),
        min_length=1,
        help="Reward channel NAME or NAME=WEIGHT; repeatable, the reward is their weighted sum.",
    )
    gamma: float = semantic(0.85, ge=0.0, le=1.0, help="Discount a turn.")
    missing: Literal["fill", "drop-dialogue", "zero"] = semantic(
        "fill", help="A reward that is missing inside a return or sum: filled by the group's mean at that turn index,"
        " its dialogue dropped, or taken as 0 (which rewards silence when rewards are negative).",
    )  # fmt: skip
    max_missing: float = semantic(
        0.3, ge=0.0, le=1.0, help="With fill: a dialogue with a larger share of its turns missing is dropped."
    )
    until: Literal["stop", "end"] = semantic(
        "stop", help="stop: turns after stop_turn do not count; end: all turns count."
    )
    axis_weights: tuple[float, ...] | None = semantic(
        None, help="Weights of the axes inside the root of the zone distance, one an axis; default all 1."
    )
    zone_epsilon: float = semantic(1.0, ge=0.0, help="An axis is in the zone from -epsilon on.")
    potential_gamma: float = semantic(0.99, ge=0.0, le=1.0, help="Channel potential: factor g of the later potential.")
    potential_scale: float = semantic(9.0, gt=0.0, help="Channel potential: a of a / (a + |P|).")
    belief: Literal["log", "probability"] = semantic(
        "log", help="Channel information-gain: difference of mean log-probs, or of their exponentials (IGPO v1)."
    )
    format_penalty: float = semantic(-2.0, help="Channel format: value after a format failure.")
    limit_penalty: float = semantic(0.0, help="Channel format: value when the turn limit was reached.")
    kl_beta: float = semantic(0.001, ge=0.0, help="Channel kl: value is -beta times the turn's kl.")
    batch_rows: int = operational(65_536, ge=1, help="Rows held in memory at a time (whole groups).")

    @model_validator(mode="after")
    def _readable_rewards(self) -> Self:
        names = [_parse(entry)[0] for entry in self.reward]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"reward {', '.join(twice)} stands twice; give each channel once, as NAME=WEIGHT")
        if self.axis_weights is not None and any(weight < 0 for weight in self.axis_weights):
            raise ValueError(f"axis_weights {self.axis_weights} must all be at least 0")
        return self

    @property
    def weights(self) -> dict[str, float]:
        """Channel name -> weight, in the order given."""
        return dict(_parse(entry) for entry in self.reward)


def _parse(entry: str) -> tuple[str, float]:
    name, separator, text = entry.partition("=")
    if not name:
        raise ValueError(f"reward '{entry}' names no channel; expected NAME or NAME=WEIGHT")
    try:
        weight = float(text) if separator else 1.0
    except ValueError:
        raise ValueError(f"reward '{entry}' has the weight '{text}'; expected a number") from None
    if not abs(weight) < float("inf"):
        raise ValueError(f"reward '{entry}' has the weight '{text}'; expected a finite number")
    return name.strip(), weight
