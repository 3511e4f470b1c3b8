"""Options of the judge ``reference-kl`` (key ``reference_options``). Light to import."""

from dialrl.config import StageConfig, operational, semantic
from dialrl.model.loading import Precision


class ReferenceOptions(StageConfig):
    """How the frozen reference is computed."""

    temperature: float | None = semantic(
        None, help="Temperature the replies were drawn at, for files that do not say; the reference's logits share it.",
        gt=0,
    )  # fmt: skip
    precision: Precision = semantic("float32", help="Precision of the reference's weights; log-probs are never lower.")
    device: str = operational("cpu", help="Where the reference runs: cpu, cuda.")
    token_budget: int = operational(8192, help="Tokens computed together.", ge=1)
