"""The lineage holds what the inputs determine and comes back as it was; what differs from run to run stands beside."""

import json

import pytest
from tests.trajectory_files import turns, write

from dialrl.errors import InputError
from dialrl.trajectory.lineage import (
    METADATA_KEY,
    InputFile,
    Lineage,
    Parent,
    StageRecord,
    package_versions,
    write_run_file,
)
from dialrl.trajectory.reader import file_digest
from dialrl.trajectory.schema import SCHEMA_VERSION

RECORD = StageRecord(
    "returns",
    options={"gamma": 0.85, "reward": ["outcome"]},
    inputs=(InputFile("judge.parquet", "sha256:12"),),
    seed=2**63 - 1,
    counts={"turns": 3},
    details={"sampling": {"temperature": 1.0}, "é": None},
    versions={"dialrl": "0.1.0"},
)


def test_a_lineage_comes_back_as_it_was():
    lineage = Lineage((RECORD, StageRecord("advantage")), Parent("../a.parquet", "sha256:34"))
    assert Lineage.from_metadata(lineage.to_metadata(), where="here") == lineage


def test_equal_lineages_are_equal_bytes_whatever_the_order_of_their_keys():
    turned = StageRecord(**{**vars(RECORD), "options": {"reward": ["outcome"], "gamma": 0.85}})
    assert Lineage((turned,)).to_metadata() == Lineage((RECORD,)).to_metadata()


def test_it_is_one_key_that_names_the_schema_version():
    (key, content), *others = Lineage((RECORD,)).to_metadata().items()
    assert (key, others) == (METADATA_KEY, [])
    assert json.loads(content)["schema_version"] == 1
    assert "parent" not in json.loads(content)


def test_the_latest_record_of_a_stage_counts():
    lineage = Lineage((StageRecord("judge", seed=1), StageRecord("returns"), StageRecord("judge", seed=2)))
    assert lineage.record("judge").seed == 2
    assert lineage.record("advantage") is None


def test_records_of_stages_that_a_rerun_makes_stale_go():
    lineage = Lineage(tuple(StageRecord(stage) for stage in ("import empa", "judge", "returns", "advantage")))
    assert [r.stage for r in lineage.outliving("returns")] == ["import empa", "judge"]
    assert [r.stage for r in lineage.outliving("judge")] == ["import empa", "judge"]


def test_a_record_without_later_fields_is_read():
    metadata = {METADATA_KEY: json.dumps({"schema_version": 1, "lineage": [{"stage": "rollout"}]}).encode()}
    assert Lineage.from_metadata(metadata, where="here").records[0].stage == "rollout"


@pytest.mark.parametrize("metadata", [None, {}, {b"pandas": b"{}"}])
def test_a_file_without_the_key_is_no_trajectory_file(metadata):
    with pytest.raises(InputError, match="here is a Parquet file but no trajectory file"):
        Lineage.from_metadata(metadata, where="here")


def test_a_newer_schema_version_is_named_with_what_to_do():
    with pytest.raises(InputError, match=r"here has schema version 2; this dialrl reads version 1\..*install that"):
        Lineage.from_metadata({METADATA_KEY: b'{"schema_version": 2}'}, where="here")


def test_the_same_rows_and_records_give_the_same_bytes(tmp_path):
    first = write(tmp_path / "a.parquet", turns(3, 2, reply="x"))
    second = write(tmp_path / "b.parquet", turns(3, 2, reply="x"))
    assert first.read_bytes() == second.read_bytes()
    assert file_digest(first) == file_digest(second)


def test_versions_hold_installed_packages_only():
    assert set(package_versions("dialrl", "no-such-package")) == {"dialrl"}


def test_times_and_machine_stand_beside_the_file(tmp_path):
    path = write(tmp_path / "t.parquet", turns(1))
    before = path.read_bytes()
    write_run_file(path, seconds=1.23456, attempts=2)
    beside = json.loads((tmp_path / "t.parquet.run.json").read_text())
    assert beside["seconds"] == 1.235
    assert beside["attempts"] == 2
    assert {"finished", "python", "machine", "system"} < set(beside)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "lineage",
    [3, ["rollout"], [{"options": {}}], [{"stage": "r", "details": [1]}], [{"stage": "r", "counts": 2}],
     [{"stage": "r", "inputs": [1]}], [{"stage": "r", "new": 1}]],
)  # fmt: skip
def test_a_lineage_that_somebody_changed_is_refused_by_file(lineage):
    raw = json.dumps({"schema_version": SCHEMA_VERSION, "lineage": lineage}).encode()
    with pytest.raises(InputError, match=r"^'a': its lineage cannot be read \(.*\)\. Write the file again"):
        Lineage.from_metadata({METADATA_KEY: raw}, where="'a'")
