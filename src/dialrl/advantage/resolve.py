"""Turns a configuration and what the file says about itself into the terms to compute. Not here: computing them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from dialrl.advantage.config import AdvantageConfig
from dialrl.advantage.presets.base import Preset
from dialrl.advantage.presets.registry import preset as preset_by_name
from dialrl.advantage.terms import DIALOGUE_CHANNELS, DIALOGUE_SCOPES, TURN_CHANNELS, Term
from dialrl.config import validated
from dialrl.errors import InputError, UsageError
from dialrl.trajectory.agreement import agreed
from dialrl.trajectory.lineage import Lineage, StageRecord
from dialrl.trajectory.reader import TrajectoryFile

Side = Literal["centre", "scale"]


@dataclass(frozen=True)
class Origin:
    """How ``returns`` made the file: discount, rule for missing rewards, channel weights, channels of the dialogue."""

    gamma: float
    missing: str
    weights: dict[str, float]
    per_dialogue: tuple[str, ...]

    @classmethod
    def of(cls, lineage: Lineage, *, where: str) -> "Origin":
        """Read the records of ``returns``. Raises InputError without one, or when parts were scored differently."""
        return cls._made((where, record) for record in _returns_of(lineage, where))

    @classmethod
    def of_file(cls, source: TrajectoryFile) -> "Origin":
        """The same of an input of one or several files."""
        shards = [(f"'{shard.path}'", shard.records) for shard in source.shards]
        return cls._made((where, record) for where, lineage in shards for record in _returns_of(lineage, where))

    @classmethod
    def _made(cls, found: Iterable[tuple[str, StageRecord]]) -> "Origin":
        records = list(found)
        known = set.intersection(*(set(record.options) for _, record in records))
        made = [(w, {n: r.options[n] for n in known} | {"weights": r.details["weights"]}) for w, r in records]
        agreed(made, done="scored", advice="Score all of them in one go: dialrl returns FILES -o OUT")
        record = records[0][1]
        return cls(
            float(record.options["gamma"]),
            str(record.options["missing"]),
            {str(name): float(weight) for name, weight in record.details["weights"].items()},
            tuple(record.details["per_dialogue"]),
        )


def _returns_of(lineage: Lineage, where: str) -> tuple[StageRecord, ...]:
    records = lineage.all_of("returns")
    if not records:
        raise InputError(f"{where} has no record of 'returns' in its lineage. Run first: dialrl returns FILE -o OUT")
    return records


def resolved_terms(config: AdvantageConfig, origin: Origin) -> tuple[tuple[Term, ...], tuple[str, ...]]:
    """The terms with every override applied and every discount a number; sentences about what was left out.

    Raises UsageError for an override that fits no term, a variant that the preset lacks, and for a file whose gamma is
    not the preset's (unless ``gamma`` was given); InputError for a channel that the file lacks.
    """
    preset = None if config.terms else preset_by_name(config.estimator)
    terms = config.terms if preset is None else _variant(preset, config)
    terms = _weighted(terms, config)
    for side in ("centre", "scale"):
        terms = _scoped(terms, side, getattr(config, side))
    terms = tuple(_adjusted(term, config) for term in terms)
    published = None if preset is None else preset.gamma
    warnings: list[str] = []
    if config.gamma is not None and not any(term.has_return for term in terms):
        warnings.append(f"gamma {config.gamma:g} has no effect: '{config.estimator}' takes undiscounted sums.")
    terms = tuple(_discounted(term, config, origin, published) for term in terms)
    return tuple(_available(term, origin, warnings) for term in terms), tuple(warnings)


def _variant(preset: Preset, config: AdvantageConfig) -> tuple[Term, ...]:
    chosen = [name for name in ("joint", "format_channel") if getattr(config, name)]
    for name in chosen:
        if name not in preset.variants:
            raise UsageError(f"--{name.replace('_', '-')} is a variant of igpo; the preset '{preset.name}' has none.")
    return preset.variants[chosen[0]] if chosen else preset.terms


def _weighted(terms: tuple[Term, ...], config: AdvantageConfig) -> tuple[Term, ...]:
    if config.turn_weight is None:
        return terms
    if len(terms) != 2 or not any(term.name == "turn" for term in terms):
        raise UsageError(
            f"turn_weight {config.turn_weight:g} needs two terms, one named 'turn' (mica, mapo);"
            f" '{config.estimator}' has: {_names(terms)}."
        )
    share = config.turn_weight
    return tuple(_changed(term, weight=share if term.name == "turn" else 1.0 - share) for term in terms)


def _scoped(terms: tuple[Term, ...], side: Side, overrides: Sequence[str]) -> tuple[Term, ...]:
    for override in overrides:
        target, separator, scope = override.rpartition("=")
        chosen = [t for t in terms if (t.name == target if separator else _fits(t, scope))]
        if not chosen:
            raise UsageError(
                f"--{side} {override} fits none of the terms {_names(terms)}. Expected SCOPE or TERM=SCOPE; terms of"
                " turns take none, turn, state, group, dialogue-means (centre), batch; terms of dialogues none,"
                " dialogue-group, dialogue-batch."
            )
        terms = tuple(_changed(term, **{side: scope}) if term in chosen else term for term in terms)
    return terms


def _fits(term: Term, scope: str) -> bool:
    return scope == "none" or term.per_dialogue == (scope in DIALOGUE_SCOPES)


def _adjusted(term: Term, config: AdvantageConfig) -> Term:
    """Fill in the stage-wide settings."""
    return _changed(
        term,
        std=term.std or config.std,
        min_std=config.min_std if term.min_std is None else term.min_std,
        leave_one_out=term.leave_one_out or (config.leave_one_out and term.centre != "none"),
        rescale=config.rescale if term.rescale == "none" and term.has_return else term.rescale,
        anchor=(term.anchor or config.anchor) if term.by_state else None,
    )


def _discounted(term: Term, config: AdvantageConfig, origin: Origin, published: float | None) -> Term:
    if not term.has_return:
        return term
    if config.gamma is not None:
        return _changed(term, gamma=config.gamma)
    if term.gamma is None and published is not None and published != origin.gamma:
        raise UsageError(
            f"The preset '{config.estimator}' was published with gamma {published:g}, but the file's returns were made"
            f" with gamma {origin.gamma:g}. Give --gamma {origin.gamma:g} to take the file's, or --gamma {published:g}"
            " to recompute them."
        )
    return term if term.gamma is not None else _changed(term, gamma=origin.gamma)


def _available(term: Term, origin: Origin, warnings: list[str]) -> Term:
    """The term with the optional channels that the file lacks left out."""
    changes = {name: _present(term, name, origin, warnings) for name in ("signal", "pooled_with")}
    return _changed(term, **changes)


def _present(term: Term, field: str, origin: Origin, warnings: list[str]) -> str | None:
    signal: str | None = getattr(term, field)
    if signal is None or signal == "reward":
        return signal
    if signal in (TURN_CHANNELS, DIALOGUE_CHANNELS):
        return _channels_of(term, signal, origin, warnings)
    kept = []
    for part in signal.split("+"):
        name = part.removesuffix("?")
        if name in origin.weights:
            kept.append(name)
        elif part.endswith("?"):
            warnings.append(f"The file has no channel '{name}': the term '{term.name}' goes without it.")
        else:
            raise InputError(
                f"The term '{term.name}' needs the channel '{name}'; the file was made with: {_names(origin.weights)}."
                f" Run again: dialrl returns ... {' '.join(f'--reward {n}' for n in [*origin.weights, name])}"
            )
    return "+".join(kept)


def _channels_of(term: Term, kind: str, origin: Origin, warnings: list[str]) -> str:
    """The file's channels of single turns, or of the dialogue; the reward where the dialogue has none of its own."""
    found = [name for name in origin.weights if (name in origin.per_dialogue) == (kind == DIALOGUE_CHANNELS)]
    if found:
        return "+".join(found)
    if kind == TURN_CHANNELS:
        raise InputError(
            f"The term '{term.name}' needs a reward of single turns; the file was made with: {_names(origin.weights)}."
            " Run again with one, for example: dialrl returns ... --reward incremental-distance"
        )
    warnings.append(
        f"The file has no channel of the dialogue (outcome): the term '{term.name}' takes the sum of its rewards."
    )
    return "reward"


def _changed(term: Term, **changes: object) -> Term:
    return validated(Term, {**term.model_dump(), **changes}, where=f"term '{term.name}'")


def _names(entries: Iterable[Term | str]) -> str:
    return ", ".join(entry if isinstance(entry, str) else entry.name for entry in entries)
