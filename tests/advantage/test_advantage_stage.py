"""``dialrl advantage`` on files: columns, lineage, counts, shards, batches, stop rules, refusals."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from credit_files import GOLDEN, advantage_of, by_dialogue, read, returns_of, rows_of, write
from dialrl.advantage.config import AdvantageConfig
from dialrl.advantage.presets import known_presets
from dialrl.advantage.stage import compute_advantages
from dialrl.errors import InputError, OutputExistsError
from dialrl.trajectory.importers.turns import import_turns
from dialrl.trajectory.reader import TrajectoryFile

PRESETS = [name for name in known_presets() if name not in ("igpo", "a2tgpo", "itpo")]


def golden(folder: Path) -> Path:
    return returns_of(write(folder / "turns.parquet", rows_of(GOLDEN)))[0]


def test_the_output_holds_the_input_and_the_new_columns(tmp_path: Path) -> None:
    returned = golden(tmp_path)
    rows, _ = advantage_of(returned, preset="mica")
    added = {"advantage_turn", "advantage_group", "advantage"}
    assert [{k: v for k, v in row.items() if k not in added} for row in rows] == read(returned)


def test_the_lineage_holds_the_terms_as_they_were_computed(tmp_path: Path) -> None:
    returned = golden(tmp_path)
    compute_advantages(returned, tmp_path / "out.parquet", AdvantageConfig(preset="mica", std="sample"))
    record = TrajectoryFile.open(tmp_path / "out.parquet").lineage.record("advantage")
    assert record is not None
    assert record.details["estimator"] == "mica"
    assert [term["std"] for term in record.details["terms"]] == ["sample", "sample"]
    assert record.details["terms"][0]["gamma"] == 0.85
    assert record.counts["turns_credited"] == 11


def test_the_summary_counts_dialogues_turns_fills_and_drops(tmp_path: Path) -> None:
    groups = {"g": [(1.0, None, None), (0.2, 0.4, 0.6, None), (1.0, 0.5, 0.3, 0.1)]}
    returned, _ = returns_of(write(tmp_path / "turns.parquet", rows_of(groups)))
    rows, summary = advantage_of(returned, preset="mica")
    counts = summary.counts
    assert (counts["dialogues"], counts["turns"], counts["dialogues_dropped"]) == (3, 11, 1)
    assert (counts["turns_credited"], counts["turns_without_advantage"], counts["turns_filled"]) == (7, 4, 1)
    assert summary.figures["members_by_turn"] == [2, 2, 2, 1]
    absolute = [abs(row["advantage"]) for row in rows if row["advantage"] is not None]
    assert summary.figures["mean_absolute_advantage"] == pytest.approx(sum(absolute) / 7)


def test_a_dropped_dialogue_is_in_no_pool(tmp_path: Path) -> None:
    dropped = {"g": [(9.0, None, None), (0.2, 0.4), (1.0, 0.5)]}
    alone = {"g": [(0.2, 0.4), (1.0, 0.5)]}
    for preset in PRESETS:
        with_it, _ = advantage_of(
            returns_of(write(tmp_path / "a.parquet", rows_of(dropped)))[0], preset=preset, gamma=0.85
        )
        without, _ = advantage_of(
            returns_of(write(tmp_path / "b.parquet", rows_of(alone)))[0], preset=preset, gamma=0.85
        )
        assert by_dialogue(with_it, "advantage")["g"] == [[None] * 3, *by_dialogue(without, "advantage")["g"]], preset


def test_turns_after_the_stop_are_in_no_pool(tmp_path: Path) -> None:
    long, short = rows_of({"g": [(1.0, 2.0, 7.0), (0.5, 0.1)]}), rows_of({"g": [(1.0, 2.0), (0.5, 0.1)]})
    for row in long:
        row["stop_turn"] = 1 if row["sample"] == 0 else None
    for preset in PRESETS:
        stopped, _ = advantage_of(returns_of(write(tmp_path / "a.parquet", long))[0], preset=preset, gamma=0.85)
        cut, _ = advantage_of(returns_of(write(tmp_path / "b.parquet", short))[0], preset=preset, gamma=0.85)
        want = by_dialogue(cut, "advantage")["g"]
        assert by_dialogue(stopped, "advantage")["g"] == [[*want[0], None], want[1]], preset


def ragged(seed: int, groups: int = 17) -> list[dict[str, Any]]:
    """Random groups with gaps; one group knows nothing, so that it is filled from the file."""
    generator = random.Random(seed)
    found: dict[str, list[tuple[float | None, ...]]] = {
        f"g{index:02d}": [
            tuple(generator.gauss(0, 1) if generator.random() > 0.1 else None for _ in range(generator.randint(1, 6)))
            for _ in range(generator.randint(1, 5))
        ]
        for index in range(groups)
    }
    return rows_of({**found, "x": [(None, None), (None,)]})


@pytest.mark.parametrize("batch_rows", [1, 13, 65_536])
def test_order_row_groups_shards_and_batches_change_nothing(tmp_path: Path, batch_rows: int) -> None:
    rows = ragged(0)
    whole, _ = returns_of(write(tmp_path / "whole.parquet", rows), max_missing=1.0)
    shuffled = random.Random(1).sample(rows, len(rows))
    shards = [
        write(
            tmp_path / f"part{part}.parquet",
            [row for row in shuffled if ord(row["group_id"][-1]) % 2 == part],
            row_group_rows=3,
        )
        for part in (0, 1)
    ]
    same, _ = returns_of(shards, max_missing=1.0, batch_rows=7)
    for preset in PRESETS:
        want = advantage_of(whole, preset=preset, gamma=0.85)[0]
        assert_same(advantage_of(same, preset=preset, gamma=0.85, batch_rows=batch_rows)[0], want)


def assert_same(got: list[dict[str, Any]], want: list[dict[str, Any]]) -> None:
    assert [(r["group_id"], r["sample"], r["turn"]) for r in got] == [
        (r["group_id"], r["sample"], r["turn"]) for r in want
    ]
    both = [[np.nan if r["advantage"] is None else r["advantage"] for r in rows] for rows in (got, want)]
    np.testing.assert_allclose(both[0], both[1], rtol=0, atol=1e-12)


def test_the_order_of_imported_lines_changes_nothing(tmp_path: Path) -> None:
    rows = [{("reward" if k == "reward_given" else k): v for k, v in row.items()} for row in ragged(5)]
    found = []
    for name, lines in (("sorted", rows), ("shuffled", random.Random(2).sample(rows, len(rows)))):
        source = tmp_path / f"{name}.jsonl"
        source.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
        import_turns(source, tmp_path / f"{name}.parquet")
        returned, _ = returns_of(tmp_path / f"{name}.parquet", max_missing=1.0)
        found.append(advantage_of(returned, preset="mapo")[0])
    assert found[0] == found[1]


def test_channels_filled_from_the_file_do_not_depend_on_batches(tmp_path: Path) -> None:
    rows = ragged(3)
    for row in rows:
        row["kl"] = row.pop("reward_given")
    returned, _ = returns_of(write(tmp_path / "turns.parquet", rows), reward=("kl",), kl_beta=1.0, max_missing=1.0)
    term = {"name": "kl", "signal": "kl", "accumulate": "return", "order": "normalise-then-return", "gamma": 1.0}
    terms = ({**term, "centre": "batch", "scale": "batch"},)
    want = advantage_of(returned, terms=terms)[0]
    assert_same(advantage_of(returned, terms=terms, batch_rows=1)[0], want)


def test_a_slim_output_reads_like_a_whole_one(tmp_path: Path) -> None:
    returned = golden(tmp_path)
    compute_advantages(returned, tmp_path / "whole.parquet")
    compute_advantages(returned, tmp_path / "slim.parquet", slim=True)
    assert "reward" not in pq.read_schema(tmp_path / "slim.parquet").names
    assert read(tmp_path / "slim.parquet") == read(tmp_path / "whole.parquet")


def test_a_file_that_has_not_been_through_returns_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "turns.parquet", rows_of(GOLDEN))
    with pytest.raises(
        InputError, match="has been through 'rollout'; this needs a file that has been through 'returns'"
    ):
        compute_advantages(source, tmp_path / "out.parquet")


def test_an_existing_output_is_refused_or_resumed(tmp_path: Path) -> None:
    returned, output = golden(tmp_path), tmp_path / "out.parquet"
    compute_advantages(returned, output)
    with pytest.raises(OutputExistsError):
        compute_advantages(returned, output)
    assert compute_advantages(returned, output, resume=True).counts["turns_credited"] == 11


def test_a_file_without_any_reward_says_that_nothing_can_be_learned(tmp_path: Path) -> None:
    returned, _ = returns_of(write(tmp_path / "turns.parquet", rows_of({"g": [(None, None)]})))
    rows, summary = advantage_of(returned, preset="mica")
    assert [row["advantage"] for row in rows] == [None, None]
    assert any("nothing in this file can be learned from" in warning for warning in summary.warnings)
