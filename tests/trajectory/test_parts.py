"""Finished blocks survive a kill; the rerun takes them as they are, or refuses other settings by name."""

import pytest
from tests.trajectory_files import read, turns, write

from dialrl.errors import OutputExistsError, UsageError
from dialrl.trajectory.lineage import Lineage
from dialrl.trajectory.parts import Parts
from dialrl.trajectory.rows import rows_to_table

IDENTITY = {"options": {"gamma": 0.85, "steps": (1, 2)}, "input": "sha256:1"}


def open_parts(output, identity=IDENTITY, *, overwrite=False, resume=False):
    return Parts(output, identity, overwrite=overwrite, resume=resume)


def block(group):
    return rows_to_table(turns(2, group=group))


def test_blocks_are_joined_into_the_output_and_the_folder_goes(tmp_path):
    parts = open_parts(tmp_path / "t.parquet")
    parts.write(1, block("b"))
    parts.write(0, block("a"))
    assert parts.done() == {0, 1}
    parts.join(["group_id", "sample", "turn"], map(parts.read, [0, 1]), Lineage())
    assert [row["group_id"] for row in read(tmp_path / "t.parquet")] == ["a", "a", "b", "b"]
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_a_rerun_finds_finished_blocks_untouched_and_no_half_one(tmp_path):
    first = open_parts(tmp_path / "t.parquet")
    first.write(0, block("a"))
    kept = first.folder / "000000.parquet"
    before = (kept.read_bytes(), kept.stat().st_mtime_ns)
    (first.folder / ".000001.parquet.tmp").write_bytes(b"half")
    again = open_parts(tmp_path / "t.parquet", resume=True)
    assert again.done() == {0}
    assert (kept.read_bytes(), kept.stat().st_mtime_ns) == before


def test_other_settings_are_refused_listing_each_key(tmp_path):
    open_parts(tmp_path / "t.parquet")
    other = {"options": {"gamma": 0.9, "steps": (1, 2)}, "input": "sha256:2"}
    with pytest.raises(UsageError, match=r"settings differ: gamma: 0\.85 -> 0\.9; input: 'sha256:1' -> 'sha256:2'"):
        open_parts(tmp_path / "t.parquet", other, resume=True)
    open_parts(tmp_path / "t.parquet", resume=True)


def test_resume_with_overwrite_starts_over_where_settings_differ(tmp_path):
    open_parts(tmp_path / "t.parquet").write(0, block("a"))
    other = {"options": {"gamma": 0.9}}
    assert open_parts(tmp_path / "t.parquet", resume=True, overwrite=True).done() == {0}
    assert open_parts(tmp_path / "t.parquet", other, resume=True, overwrite=True).done() == set()


def test_an_unfinished_output_is_neither_continued_nor_thrown_away_unasked(tmp_path):
    open_parts(tmp_path / "t.parquet").write(0, block("a"))
    with pytest.raises(OutputExistsError, match=r"unfinished '.*t\.parquet' exists.*--resume.*--overwrite"):
        open_parts(tmp_path / "t.parquet")
    assert open_parts(tmp_path / "t.parquet", overwrite=True).done() == set()


def test_a_complete_output_is_refused(tmp_path):
    write(tmp_path / "t.parquet", turns(1))
    with pytest.raises(OutputExistsError, match="exists"):
        open_parts(tmp_path / "t.parquet")
    assert open_parts(tmp_path / "t.parquet", overwrite=True).done() == set()


def test_resuming_what_was_never_begun_begins_it(tmp_path):
    assert open_parts(tmp_path / "t.parquet", resume=True).done() == set()
