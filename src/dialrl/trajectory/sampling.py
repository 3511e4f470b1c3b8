"""What the lineage says about how the replies were drawn, and whether such replies can be trained.

The trainer divides its logits by the sampling temperature. A truncated distribution (top-p, top-k, min-p, penalties)
cannot be reproduced, because the kept set is not stored: on p = (.5, .3, .15, .05) with top-p .8 the sampler draws from
(.625, .375), and an on-policy ratio would come out 0.8 instead of 1 (field case 17). So it is refused, never ignored.
"""

from collections.abc import Mapping
from typing import Any

from dialrl.errors import InputError
from dialrl.trajectory.agreement import agreed, rollouts
from dialrl.trajectory.reader import TrajectoryFile

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "top_p": (None, 1, 1.0),
    "top_k": (None, 0, -1),
    "min_p": (None, 0, 0.0),
    "repetition_penalty": (None, 1, 1.0),
    "presence_penalty": (None, 0, 0.0),
    "frequency_penalty": (None, 0, 0.0),
}


def policy_digests(source: TrajectoryFile) -> tuple[str, ...]:
    """Digests of the policies that sampled the replies, as far as the lineage names them."""
    named = [None if record is None else record.details.get("policy_digest") for _, record in rollouts(source)]
    return tuple(dict.fromkeys(digest for digest in named if digest is not None))


def sampling_temperature(source: TrajectoryFile, *, given: float | None) -> float:
    """Temperature the stored log-probs are under, that of every part of ``source``.

    ``given`` is used where the lineage does not state one. Raises InputError for settings that cannot be trained, and
    for parts drawn at different temperatures: the logits of all are divided by one number.
    """
    drawn = [
        (where, {"temperature": _temperature({} if record is None else record.details, given, where)})
        for where, record in rollouts(source)
    ]
    advice = "The log-probs of one update are under one temperature; give files that were drawn alike."
    return float(agreed(drawn, done="sampled", advice=advice)["temperature"])


def _temperature(details: Mapping[str, Any], given: float | None, where: str) -> float:
    """Temperature of one part; checks all of its settings."""
    sampling = details.get("sampling") or {}
    if not isinstance(sampling, Mapping):
        raise InputError(f"{where}: its lineage has sampling {sampling!r:.80}; expected an object. Roll out again.")
    for name, neutral in _NEUTRAL.items():
        if sampling.get(name) not in neutral:
            raise InputError(
                f"{where} was sampled with {name} {sampling[name]}; expected {neutral[-1]}. The kept set of tokens is"
                " not stored, so the log-probs of the trainer and of the sampler would mean different distributions."
                " Roll out for training without it."
            )
    stated = sampling.get("temperature")
    if not isinstance(stated, int | float | None):
        raise InputError(f"{where}: its lineage has temperature {stated!r:.80}; expected a number. Roll out again.")
    temperature = given if stated is None else float(stated)
    if temperature is None:
        raise InputError(
            f"{where} does not say at which temperature it was sampled (no 'sampling' in the rollout record of its"
            " lineage). Give --temperature."
        )
    if temperature <= 0:
        raise InputError(
            f"{where} was sampled at temperature {temperature}: greedy replies have no log-probs to train."
        )
    _check_kind(details.get("logprobs_kind"), temperature, where)
    return temperature


def _check_kind(kind: Any, temperature: float, where: str) -> None:
    if kind not in (None, "drawn", "raw"):
        raise InputError(f"{where} has logprobs_kind '{kind}'; expected 'drawn' or 'raw'.")
    if kind == "raw" and temperature != 1.0:
        raise InputError(
            f"{where} holds raw log-probs (before temperature) at temperature {temperature}; expected log-probs under"
            " the distribution drawn from ('drawn'), or temperature 1."
        )
