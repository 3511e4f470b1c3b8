"""An advantage file becomes sequences with the right tokens trained, or is refused in a sentence that says where."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.update.worlds import random_rows, read_data, turn_row, write_advantages

from dialrl.errors import InputError, NumericalError
from dialrl.update.config import UpdateConfig
from dialrl.update.data import TrainingData

CONFIG = UpdateConfig()


def data_of(tmp_path: Path, rows: list[dict[str, Any]], config: UpdateConfig = CONFIG, **more: Any) -> TrainingData:
    limit = more.pop("limit", 256)
    return read_data(write_advantages(tmp_path / "a.parquet", rows, **more), config, limit)


def trained(data: TrainingData) -> list[list[int]]:
    return [sequence.trained_places.tolist() for sequence in data.sequences]


def test_only_sampled_tokens_are_trained(tmp_path: Path) -> None:
    # Field case 4: prompt 2, reply 3 with its end-of-turn, user 2, reply 2.
    data = data_of(tmp_path, [turn_row("g", 0, 0, [10, 11], [1, 2, 9]), turn_row("g", 0, 1, [4, 5], [3, 9])])
    assert data.sequences[0].ids_T.tolist() == [10, 11, 1, 2, 9, 4, 5, 3, 9]
    assert trained(data) == [[2, 3, 4, 7, 8]]
    assert data.trained_tokens == 5
    assert data.sampler_logprobs_T is not None
    assert len(data.sampler_logprobs_T) == 5


def test_every_token_carries_the_advantage_of_its_own_turn(tmp_path: Path) -> None:
    # Field case 12: replies of 2, 1, 3 tokens and dialogue advantage .7: six tokens of .7, sum 4.2.
    lengths = (2, 1, 3)
    rows = [turn_row("g", 0, turn, [1], [5] * length, advantage=0.7) for turn, length in enumerate(lengths)]
    data = data_of(tmp_path, rows)
    assert data.advantage_T.sum() == pytest.approx(4.2)
    ragged = [turn_row("g", 0, t, [1], [5] * n, advantage=float(t)) for t, n in enumerate(lengths)]
    assert data_of(tmp_path, ragged).advantage_T.tolist() == [0, 0, 1, 2, 2, 2]


def test_a_new_segment_is_a_new_sequence(tmp_path: Path) -> None:
    # Field case 3: five turns with one break before turn 4 give two sequences (turns 1-3 and 4-5), none dropped.
    rows = [turn_row("g", 0, turn, [1, 1], [turn + 2], segment=int(turn >= 3)) for turn in range(5)]
    data = data_of(tmp_path, rows)
    assert [sequence.ids_T.tolist() for sequence in data.sequences] == [[1, 1, 2, 1, 1, 3, 1, 1, 4], [1, 1, 5, 1, 1, 6]]
    assert data.turn_number.tolist() == [0, 1, 2, 3, 4]
    assert data.counts["dialogues"] == 1


def test_turns_without_advantage_are_context(tmp_path: Path) -> None:
    rows = [turn_row("g", 0, 0, [1], [2, 3], advantage=None), turn_row("g", 0, 1, [4], [5])]
    data = data_of(tmp_path, rows)
    assert data.sequences[0].ids_T.tolist() == [1, 2, 3, 4, 5]
    assert trained(data) == [[4]]
    assert data.counts["turns_without_advantage"] == 1


def test_ragged_dialogues_are_all_seen_once(tmp_path: Path) -> None:
    # Field case 16: 9, 15, 9, 11 turns: 44 turns, nothing dropped or repeated.
    rows = [
        turn_row("g", sample, turn, [1], [2]) for sample, count in enumerate((9, 15, 9, 11)) for turn in range(count)
    ]
    data = data_of(tmp_path, rows)
    assert data.counts["turns_trained"] == 44
    assert np.bincount(data.turn_dialogue).tolist() == [9, 15, 9, 11]


def test_failed_rows_are_skipped_and_counted(tmp_path: Path) -> None:
    failed = turn_row("g", 0, 1, [1], [], status="error", reply_ids=None, reply_logprobs=None, advantage=None)
    data = data_of(tmp_path, [turn_row("g", 0, 0, [1], [2]), failed])
    assert data.counts["turns_failed"] == 1
    assert data.trained_tokens == 1


def test_an_empty_reply_has_nothing_to_train(tmp_path: Path) -> None:
    data = data_of(tmp_path, [turn_row("g", 0, 0, [1], []), turn_row("g", 0, 1, [1], [2])])
    assert data.counts["turns_without_tokens"] == 1
    assert data.trained_tokens == 1


def test_replies_cut_by_length_are_trained_unless_masked(tmp_path: Path) -> None:
    rows = [turn_row("g", 0, 0, [1], [2, 3], finish_reason="length"), turn_row("g", 0, 1, [1], [2])]
    assert data_of(tmp_path, rows).trained_tokens == 3
    masked = data_of(tmp_path, rows, UpdateConfig(truncated="mask"))
    assert masked.trained_tokens == 1
    assert masked.counts["turns_cut_masked"] == 1


def test_zero_advantages_stay_in_the_mean_unless_dropped(tmp_path: Path) -> None:
    rows = [turn_row("g", 0, 0, [1], [2, 3], advantage=0.0), turn_row("g", 0, 1, [1], [2])]
    kept = data_of(tmp_path, rows)
    assert (kept.trained_tokens, kept.counts["turns_zero_advantage"]) == (3, 1)
    dropped = data_of(tmp_path, rows, UpdateConfig(drop_degenerate=True))
    assert (dropped.trained_tokens, dropped.counts["turns_zero_dropped"]) == (1, 1)


def test_sft_trains_chosen_dialogues_whole(tmp_path: Path) -> None:
    good = [turn_row("g", 0, 0, [1], [2], advantage=-0.5), turn_row("g", 0, 1, [1], [2], advantage=2.0)]
    bad = [turn_row("g", 1, 0, [1], [2], advantage=-1.0)]
    data = data_of(tmp_path, good + bad, UpdateConfig(loss="sft"))
    assert data.turn_advantage.tolist() == [1.0, 1.0]
    assert data.counts["turns_not_chosen"] == 1


@pytest.mark.parametrize("hole", [math.nan, -math.inf])
def test_a_hole_in_trained_log_probs_names_dialogue_turn_and_token(hole: float, tmp_path: Path) -> None:
    rows = [turn_row("g", 0, 0, [1], [2]), turn_row("g", 1, 0, [1], [2, 3, 4], reply_logprobs=[-1, -1, hole])]
    with pytest.raises(NumericalError, match=r"dialogue 'g/1', turn 0, token 2"):
        data_of(tmp_path, rows)


def test_a_hole_in_untrained_log_probs_does_not_matter(tmp_path: Path) -> None:
    # Field case 6: masked NaN.
    rows = [
        turn_row("g", 0, 0, [1], [2], reply_logprobs=[math.nan], advantage=None),
        turn_row("g", 0, 1, [1], [2]),
    ]
    data = data_of(tmp_path, rows)
    assert data.sampler_logprobs_T is not None
    assert data.sampler_logprobs_T.tolist() == [-1.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reply_logprobs": [-1.0]}, "has 2 reply_ids but 1 reply_logprobs"),  # field case 28
        ({"reply_logprobs": None}, "has reply_ids but no reply_logprobs"),
        ({"reply_ids": None}, "has reply_logprobs but no reply_ids"),
        ({"reply_ids": None, "reply_logprobs": None}, "can be evaluated, not trained"),
        ({"prompt_ids": None}, "can be evaluated, not trained"),
        ({"prompt_ids": []}, "nothing predicts its first token"),
        ({"advantage": math.nan}, "has advantage nan"),
    ],
)
def test_ids_and_log_probs_are_all_or_none(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises((InputError, NumericalError), match=message) as error:
        data_of(tmp_path, [turn_row("g", 0, 0, [1], [2, 3], **change)])
    assert "dialogue 'g/0', turn 0" in str(error.value)


def test_text_without_ids_is_for_evaluation_only(tmp_path: Path) -> None:
    row = turn_row("g", 0, 0, [1], [2])
    for name in ("prompt_ids", "reply_ids", "reply_logprobs"):
        del row[name]
    with pytest.raises(InputError, match="can be evaluated, not trained"):
        data_of(tmp_path, [row])


def test_missing_context_is_refused(tmp_path: Path) -> None:
    rows = [
        turn_row("g", 0, 0, [1], [2], reply_ids=None, reply_logprobs=None, advantage=None),
        turn_row("g", 0, 1, [1], [2]),
    ]
    with pytest.raises(InputError, match="turn 0 has no token ids, but later turns"):
        data_of(tmp_path, rows)


def test_a_dialogue_longer_than_the_limit_is_refused_with_both_lengths(tmp_path: Path) -> None:
    # Field case 22.
    rows = [turn_row("g", 0, turn, [1, 2], [3, 4]) for turn in range(5)]
    with pytest.raises(InputError, match=r"Dialogue 'g/0', segment 0 has 20 tokens; the limit is 9"):
        data_of(tmp_path, rows, limit=9)


def test_or_split_between_turns(tmp_path: Path) -> None:
    rows = [turn_row("g", 0, turn, [1, 2], [3, 4]) for turn in range(5)]
    data = data_of(tmp_path, rows, UpdateConfig(overlong="split"), limit=9)
    assert [len(sequence.ids_T) for sequence in data.sequences] == [8, 8, 4]
    assert data.turn_number.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(InputError, match=r"turn 0 alone has 4 tokens; the limit is 3"):
        data_of(tmp_path, rows, UpdateConfig(overlong="split"), limit=3)


def test_what_is_exactly_as_long_as_the_limit_is_neither_refused_nor_split(tmp_path: Path) -> None:
    rows = [turn_row("g", 0, turn, [1], [2, 3]) for turn in range(3)]
    whole = data_of(tmp_path, rows, limit=9)
    assert [len(sequence.ids_T) for sequence in whole.sequences] == [9]
    parts = data_of(tmp_path, rows, UpdateConfig(overlong="split"), limit=6)
    assert [len(sequence.ids_T) for sequence in parts.sequences] == [6, 3]


@pytest.mark.parametrize(
    ("details", "message"),
    [
        ({"sampling": {"temperature": 1.0, "top_p": 0.8}}, "top_p 0.8"),  # field case 17
        ({"sampling": {"temperature": 1.0, "top_k": 20}}, "top_k 20"),
        ({"sampling": {"temperature": 1.0, "min_p": 0.05}}, "min_p 0.05"),
        ({"sampling": {"temperature": 1.0, "repetition_penalty": 1.1}}, "repetition_penalty 1.1"),
        ({"sampling": {"temperature": 0.0}}, "temperature 0.0"),
        ({"sampling": {"temperature": 0.7}, "logprobs_kind": "raw"}, "raw log-probs .* at temperature 0.7"),
        ({"sampling": {}}, "Give --temperature"),
    ],
)
def test_distributions_that_cannot_be_reproduced_are_refused(
    details: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        data_of(tmp_path, [turn_row("g", 0, 0, [1], [2])], **details)


def test_the_temperature_comes_from_the_lineage_or_the_option(tmp_path: Path) -> None:
    rows = [turn_row("g", 0, 0, [1], [2])]
    assert data_of(tmp_path, rows, sampling={"temperature": 0.7}).temperature == 0.7
    assert data_of(tmp_path, rows, UpdateConfig(temperature=0.9), sampling={}).temperature == 0.9
    raw = data_of(tmp_path, rows, sampling={"temperature": 1.0}, logprobs_kind="raw")
    assert raw.temperature == 1.0


def test_turns_sampled_too_long_ago_are_refused(tmp_path: Path) -> None:
    path = write_advantages(tmp_path / "a.parquet", [turn_row("g", 0, 0, [1], [2], policy_step=-3)])
    with pytest.raises(InputError, match="3 steps before"):
        read_data(path, UpdateConfig(max_lag=2))
    assert read_data(path, UpdateConfig(max_lag=3)).trained_tokens == 1


def test_ids_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    data = data_of(tmp_path, [turn_row("g", 0, 0, [1], [700])])
    with pytest.raises(InputError, match=r"'g/0' holds token id 700; the policy's vocabulary has 12"):
        data.check_vocabulary(12)


def test_the_spread_of_the_pools_stands_beside_the_counts(tmp_path: Path) -> None:
    rows = [
        turn_row("g", 0, 0, [1], [2], reward=1.0, advantage=1.0),
        turn_row("g", 0, 1, [1], [2], reward=3.0, advantage=-1.0),
        turn_row("g", 0, 2, [1], [2], reward=None, advantage=None),
    ]
    spreads = data_of(tmp_path, rows).spreads
    assert spreads == {"reward_std": 1.0, "reward_count": 2, "advantage_std": 1.0, "advantage_count": 2}


def test_tokens_are_named_by_dialogue_turn_and_place(tmp_path: Path) -> None:
    data = data_of(tmp_path, random_rows(6, seed=1))
    names = [data.name_token(token) for token in range(data.trained_tokens)]
    assert len(set(names)) == data.trained_tokens
    assert names[0].endswith("turn 0, token 0")
