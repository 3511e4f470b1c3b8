"""export --to jsonl: what import turns reads back is the same file; what it would refuse is left out and named."""

import json

import pytest
from tests.trajectory_files import read, row, write

from dialrl.errors import InputError, OutputExistsError
from dialrl.trajectory.exporters.config import ExportConfig
from dialrl.trajectory.exporters.stage import export
from dialrl.trajectory.importers.config import ImportTurnsConfig
from dialrl.trajectory.importers.turns import import_turns

MESSAGE = {"role": "user", "name": None, "content": "Hm.\u2028 \U0001f33b"}
GRADE = {"indicator": "C.Prog", "level": 1, "evidence": "Hm.", "reasoning": None}


def full_rows(group="g", sample=0):
    """Two turns with a value or a null in nearly every column of the stages rollout and judge."""
    keys = {
        "dialogue_id": f"{group}/{sample}", "scenario_id": "card", "environment": "demo", "status": "ok",
        "deficit": [-3.0, -0.1], "stop_turn": 1, "policy_digest": "sha256:0", "policy_step": 3, "error": None,
    }  # fmt: skip
    first = row(
        group, sample, 0, **keys, messages=[MESSAGE], reply=" Yes.\n", thinking=None, segment=0, prompt_ids=[1, 2],
        reply_ids=[7, 8], reply_logprobs=[-0.1, -1.7000000476837158], finish_reason="stop", flags=["repetition"],
        director={"tool": "wait", "argument": None, "guidance": None}, seed=2**62, increment=[0.1, 0.2],
        position=[-2.9, 0.1], position_estimated=False, grades=[GRADE], judge_status="ok", judge_error=None, kl=0.25,
        usage=[{"role": "policy", "prompt_tokens": 3, "cached_tokens": None, "completion_tokens": 2}],
    )  # fmt: skip
    last = row(
        group, sample, 1, **keys, messages=[], reply="", increment=None, position=[-2.9, 0.1], position_estimated=True,
        grades=None, judge_status="missing", judge_error="no JSON", end_reason="farewell", terminated=True,
        truncated=False, outcome=0.5, final_messages=[MESSAGE], final_ids=[5],
    )  # fmt: skip
    return [first, last]


def back(path, tmp_path, **options):
    """``path`` after import."""
    import_turns(path, tmp_path / "back.parquet", ImportTurnsConfig(**options), overwrite=True)
    return read(tmp_path / "back.parquet")


def test_what_is_imported_again_is_the_same(tmp_path):
    source = write(tmp_path / "t.parquet", [*full_rows(), *full_rows(sample=1), *full_rows("h", 4)])
    summary = export(source, tmp_path / "t.jsonl", "jsonl")
    assert back(tmp_path / "t.jsonl", tmp_path) == read(source)
    assert summary.counts["examples"] == 6
    assert summary.figures["columns_left_out"] == []


def test_every_line_has_every_key_and_texts_are_written_as_they_are(tmp_path):
    export(write(tmp_path / "t.parquet", full_rows()), tmp_path / "t.jsonl", "jsonl")
    lines = (tmp_path / "t.jsonl").read_bytes().decode().split("\n")
    assert lines[-1] == ""
    assert "\u2028" in lines[0]
    first, last = (json.loads(line) for line in lines[:-1])
    assert list(first) == list(last)
    assert first["outcome"] is None


def test_computed_columns_are_left_out_and_named_but_an_advantage_stays(tmp_path):
    rows = [turn | {"reward": 1.0, "reward_filled": 1.0, "return": 2.0, "advantage": -0.5} for turn in full_rows()]
    source = write(tmp_path / "t.parquet", [turn | {"reward_given": 1.0, "advantage_turn": 1.0} for turn in rows])
    summary = export(source, tmp_path / "t.jsonl", "jsonl")
    assert summary.figures["columns_left_out"] == ["reward", "reward_filled", "return", "advantage_turn"]
    (first, _) = back(tmp_path / "t.jsonl", tmp_path)
    assert (first["reward_given"], first["advantage"], "return" in first) == (1.0, -0.5, False)


def test_dialogues_are_chosen_by_name_group_and_ending(tmp_path):
    rows = [*full_rows(), *full_rows(sample=1), *full_rows("h")]
    rows[-1] |= {"end_reason": "turn_limit", "terminated": False, "truncated": True}
    source = write(tmp_path / "t.parquet", rows)

    def chosen(**options):
        export(source, tmp_path / "out.jsonl", "jsonl", ExportConfig(**options), overwrite=True)
        return sorted({turn["dialogue_id"] for turn in back(tmp_path / "out.jsonl", tmp_path)})

    assert chosen(dialogues=("g/1",)) == ["g/1"]
    assert chosen(dialogues=("g", "h/0")) == ["g/0", "g/1", "h/0"]
    assert chosen(end_reasons=("turn_limit",)) == ["h/0"]
    assert chosen(batch_rows=1) == ["g/0", "g/1", "h/0"]


def test_an_unknown_dialogue_and_an_empty_choice_are_refused_and_leave_no_file(tmp_path):
    source, output = write(tmp_path / "t.parquet", full_rows()), tmp_path / "out.jsonl"
    with pytest.raises(InputError, match="has no dialogue or group 'x/0'"):
        export(source, output, "jsonl", ExportConfig(dialogues=("g/0", "x/0")))
    with pytest.raises(InputError, match="is left to export"):
        export(source, output, "jsonl", ExportConfig(end_reasons=("success",)))
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_an_existing_output_is_kept(tmp_path):
    source = write(tmp_path / "t.parquet", full_rows())
    (tmp_path / "t.jsonl").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputExistsError, match="exists"):
        export(source, tmp_path / "t.jsonl", "jsonl")
    assert (tmp_path / "t.jsonl").read_text(encoding="utf-8") == "mine"


def test_a_gap_in_the_turns_comes_back_where_gaps_are_allowed(tmp_path):
    rows = [turn | {"turn": 3 * turn["turn"], "stop_turn": 3} for turn in full_rows()]
    source = write(tmp_path / "t.parquet", rows)
    export(source, tmp_path / "t.jsonl", "jsonl")
    assert back(tmp_path / "t.jsonl", tmp_path, allow_gaps=True) == read(source)
