"""A reward model from outcomes: the loss by hand, gradients against a plain float64 reference, and that it learns."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.update.test_gradient_equality import CUTS, ROWS, moved, relative
from tests.update.worlds import (
    gradients,
    read_data,
    save_policy,
    tiny_model,
    turn_row,
    with_outcomes,
    write_advantages,
)

from dialrl.config import validated
from dialrl.errors import InputError, UsageError
from dialrl.model.find import find_policy
from dialrl.model.layout import prepare_layout
from dialrl.update.config import UpdateConfig
from dialrl.update.losses.outcome import OutcomeTokens, outcome_loss
from dialrl.update.outcomes import outcome_figures
from dialrl.update.passes import Passes
from dialrl.update.plan import plan_steps
from dialrl.update.policy_directory import read_manifest
from dialrl.update.stage import update_policy
from dialrl.update.statistics import StepSums
from dialrl.update.trainer import manifest_options

# the loss -----------------------------------------------------------------------------------------------------------


def tokens(log_ratio: list[float], label: list[float], dialogue: list[int]) -> OutcomeTokens:
    values = torch.tensor(log_ratio, dtype=torch.float64)
    return OutcomeTokens(
        (values - 2).requires_grad_(), torch.full_like(values, -2), torch.tensor(label, dtype=torch.float64),
        torch.tensor(dialogue),
    )  # fmt: skip


@pytest.mark.parametrize(("label", "loss"), [(1.0, 0.3133), (0.0, 1.3133), (0.5, 0.8133)])
def test_the_loss_is_the_cross_entropy_of_the_dialogues_sum(label: float, loss: float) -> None:
    found = outcome_loss(tokens([2.0, 1.0, -1.0], [label] * 3, [7] * 3), 0.5)
    assert found.score_T.tolist() == [1.0] * 3
    assert found.loss_T.tolist() == pytest.approx([loss] * 3, abs=5e-5)


def test_every_token_has_the_gradient_beta_times_how_far_the_dialogue_is_off() -> None:
    given = tokens([2.0, 1.0, -1.0, 0.0], [1.0, 1.0, 1.0, 0.0], [4, 4, 4, 1])
    found = outcome_loss(given, 0.5)
    weights = torch.tensor([1 / 6, 1 / 6, 1 / 6, 1 / 2], dtype=torch.float64)  # two dialogues of 3 and 1 tokens
    (found.loss_T * weights).sum().backward()
    off = 1 / (1 + math.exp(-1)) - 1
    assert given.logprobs_T.grad.tolist() == pytest.approx([0.25 * off] * 3 + [0.25 * 0.5])


def test_figures_count_signs_and_pairs_of_one_group() -> None:
    figures = outcome_figures(np.array([1.0, -1.0, 2.0]), np.array([1.0, 0.2, 0.9]), ["g"] * 3)
    assert (figures["accuracy"], figures["pairs"]) == (1.0, 3)
    assert figures["pairwise_accuracy"] == pytest.approx(2 / 3)
    alone = outcome_figures(np.array([1.0, -1.0]), np.array([0.5, 0.5]), ["g", "h"])
    assert (alone["accuracy"], alone["pairwise_accuracy"], alone["pairs"]) == (None, None, 0)
    fresh = outcome_figures(np.zeros(2), np.array([0.0, 1.0]), ["g", "g"])
    assert (fresh["accuracy"], fresh["pairwise_accuracy"]) == (0.5, 0.5)


# every cut ----------------------------------------------------------------------------------------------------------

OUTCOMES = with_outcomes(ROWS)


def configured(**options: Any) -> UpdateConfig:
    return UpdateConfig(**{"loss": "outcome", "outcome_beta": 0.3, "reference": "reference", **options})


def outcome_gradients(path: Path, config: UpdateConfig) -> tuple[StepSums, Any, dict[str, torch.Tensor]]:
    """One optimiser step's sums, scores and gradients."""
    data = read_data(path, config)
    (step,) = plan_steps(data, config, step=0)
    reference = tiny_model("llama", dtype=torch.float64)
    phi = moved(reference)
    prepare_layout(reference, config.layout)
    passes = Passes(phi, data, config, reference)
    phi.zero_grad()
    sums = passes.accumulate(step.dialogues, step.weights_T, first=True)
    return sums, passes.scores_of(step.dialogues), {name: p.grad.clone() for name, p in phi.named_parameters()}


def plain_loss(phi: Any, reference: Any, rows: list[dict[str, Any]], beta: float) -> torch.Tensor:
    """Mean over dialogues with an outcome of BCE, one dialogue and one turn at a time."""
    losses = []
    for key in dict.fromkeys((row["group_id"], row["sample"]) for row in rows):
        dialogue = [row for row in rows if (row["group_id"], row["sample"]) == key]
        if dialogue[-1]["outcome"] is None:
            continue
        score = torch.zeros((), dtype=torch.float64)
        context: dict[int, list[int]] = {}
        for row in dialogue:
            ids = context.setdefault(row["segment"], [])
            ids += row["prompt_ids"]
            whole = torch.tensor([ids + row["reply_ids"]])
            new, old = (model(whole).logits[0].log_softmax(-1) for model in (phi, reference))
            for place, token in enumerate(row["reply_ids"], len(ids) - 1):
                score = score + beta * (new[place, token] - old[place, token].detach())
            ids += row["reply_ids"]
        label, chance = dialogue[-1]["outcome"], torch.sigmoid(score)
        losses.append(-label * chance.log() - (1 - label) * (1 - chance).log())
    return torch.stack(losses).mean()


def test_every_cut_gives_the_gradients_of_the_reference(tmp_path: Path) -> None:
    path = write_advantages(tmp_path / "a.parquet", OUTCOMES)
    reference = tiny_model("llama", dtype=torch.float64)
    phi = moved(reference)
    value: list[float] = []

    def plain() -> torch.Tensor:
        result = plain_loss(phi, reference, OUTCOMES, 0.3)
        value.append(result.item())
        return result

    expected = gradients(phi, plain)
    assert abs(value[0] - math.log(2)) > 0.01  # scores are not 0
    for cut in CUTS:
        sums, _, found = outcome_gradients(path, configured(**cut))
        assert relative(found, expected) <= 1e-10, cut
        assert sums.loss == pytest.approx(value[0], rel=1e-10), cut


def test_advantages_the_sampler_and_its_settings_do_not_matter(tmp_path: Path) -> None:
    bare = [{**row, "advantage": None, "reply_logprobs": None} for row in OUTCOMES]
    paths = [
        write_advantages(tmp_path / "a.parquet", OUTCOMES),
        write_advantages(tmp_path / "b.parquet", bare, sampling={"temperature": 0.7, "top_p": 0.9}),
    ]
    one, other = (outcome_gradients(path, configured())[2] for path in paths)
    assert relative(other, one) == 0.0


def test_a_files_outcomes_may_have_a_range_of_their_own(tmp_path: Path) -> None:
    wide = [{**row, "outcome": None if row["outcome"] is None else 20 * row["outcome"] - 10} for row in OUTCOMES]
    path = write_advantages(tmp_path / "wide.parquet", wide)
    with pytest.raises(InputError, match=r"dialogue 'g0.*has outcome .*outcome_range"):
        read_data(path, configured())
    labels = [read_data(path, configured(outcome_range=limits)).dialogue_label for limits in ((-10, 10), (0, 10))]
    assert labels[0] == pytest.approx([row["outcome"] for row in OUTCOMES if row["outcome"] is not None])
    assert labels[1] == pytest.approx(np.clip(2 * labels[0] - 1, 0, 1))
    counts = read_data(path, configured(outcome_range=(0, 10))).counts
    assert counts["outcomes_clipped"] == int((labels[0] < 0.5).sum())


def test_dialogues_without_an_outcome_and_turns_after_a_stop_are_left_out_and_counted(
    tmp_path: Path,
) -> None:
    rows = [
        turn_row("g", 0, 0, [3], [4, 5], stop_turn=0), turn_row("g", 0, 1, [6], [7], stop_turn=0, outcome=1.0),
        turn_row("g", 1, 0, [3], [4]), turn_row("g", 2, 0, [3], [8], status="error", outcome=0.0),
        turn_row("g", 3, 0, [3], [], outcome=0.0), turn_row("g", 4, 0, [3], [9], outcome=0.25),
    ]  # fmt: skip
    data = read_data(write_advantages(tmp_path / "a.parquet", rows), configured())
    assert [sequence.ids_T.tolist() for sequence in data.sequences] == [[3, 4, 5], [3, 9]]
    assert data.dialogue_label.tolist() == [1.0, 0.25]
    found = {name: data.counts[name] for name in data.counts if name.startswith("turns_") and data.counts[name]}
    assert found == {
        "turns_after_stop": 1, "turns_without_outcome": 1, "turns_failed": 1, "turns_without_tokens": 1,
        "turns_trained": 2,
    }  # fmt: skip
    assert data.counts["dialogues_without_outcome"] == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"reference": None}, "reference"),
        ({"kl_coefficient": 0.1}, "kl_coefficient"),
        ({"entropy_bonus": 0.1}, "entropy_bonus"),
        ({"truncated": "mask"}, "truncated mask"),
        ({"aggregation": "turn"}, "mean over dialogues"),
        ({"outcome_range": [1, 1]}, "lower one first"),
    ],
)
def test_settings_that_do_not_fit_are_refused(options: dict[str, Any], said: str) -> None:
    values = {"loss": "outcome", "reference": "p", **options}
    with pytest.raises(UsageError, match=said):
        validated(UpdateConfig, values, where="x")


# the stage ----------------------------------------------------------------------------------------------------------


def judged(path: Path) -> Path:
    """Sixteen dialogues in groups of four: those that say 5 do well, those that say 6 do not; one came to no end."""
    rows = []
    for number in range(16):
        group, sample, good = f"g{number // 4}", number % 4, number % 2 == 0
        rows += [
            turn_row(group, sample, 0, [3, 4 + number // 4], [5 if good else 6, 1], advantage=None),
            turn_row(group, sample, 1, [7], [8, 9], advantage=None, outcome=0.9 if good else 0.2),
        ]
    rows[-1]["outcome"] = None
    return write_advantages(path, rows)


def test_a_reward_model_learns_which_dialogues_do_well(tmp_path: Path) -> None:
    path, start = judged(tmp_path / "judge.parquet"), save_policy(tmp_path / "start")
    config = UpdateConfig(
        loss="outcome", reference=start, outcome_beta=0.5, learning_rate=0.02, max_gradient_norm=10, epochs=8,
        device="cpu",
    )  # fmt: skip
    first = update_policy(path, start, tmp_path / "phi", config)
    assert first.counts["dialogues_without_outcome"] == 1
    assert any("1 dialogues have no outcome" in warning for warning in first.warnings)
    again = update_policy(path, tmp_path / "phi", tmp_path / "phi2", config.updated(epochs=1))
    assert again.figures["pairwise_accuracy"] == 1.0
    assert again.figures["accuracy"] == 1.0
    assert again.figures["loss"] < 0.6 < math.log(2)
    assert {"ratio_mean", "clipped_share", "mean_abs_advantage"} & set(again.figures) == set()
    pairs = 3 * 4 + 2  # of two and two dialogues, in the last group of two and one
    cut = update_policy(path, tmp_path / "phi", tmp_path / "phi3", config.updated(epochs=2, mini_batch_dialogues=2))
    assert (again.figures["pairs"], cut.figures["pairs"]) == (pairs, pairs)  # also where steps hold parts of groups
    manifest = read_manifest(tmp_path / "phi")
    assert manifest is not None
    assert manifest.options["reference"].startswith("sha256:")


def test_the_reference_may_be_a_name() -> None:
    named = UpdateConfig(loss="outcome", reference="demo-policy")  # type: ignore[arg-type]
    found = UpdateConfig(loss="outcome", reference=find_policy("demo-policy"))  # type: ignore[arg-type]
    assert manifest_options(named)["reference"] == manifest_options(found)["reference"]


def test_a_file_without_outcomes_says_what_would_give_them(tmp_path: Path) -> None:
    start = save_policy(tmp_path / "start")
    path = write_advantages(tmp_path / "a.parquet", [turn_row("g", 0, 0, [3], [4])])
    config = UpdateConfig(loss="outcome", reference=start, device="cpu")
    with pytest.raises(InputError, match=r"no column 'outcome'.*dialrl judge"):
        update_policy(path, start, tmp_path / "phi", config)
    unknown = write_advantages(tmp_path / "b.parquet", [turn_row("g", 0, 0, [3], [4], outcome=None)])
    summary = update_policy(unknown, start, tmp_path / "phi", config)
    assert any("no learning signal" in warning and "1 without outcome" in warning for warning in summary.warnings)
