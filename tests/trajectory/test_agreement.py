"""An input of several files, or one joined from several, says what all its parts say; parts that differ are refused."""

from pathlib import Path

import pytest
from tests.update.worlds import SAMPLING, random_rows, read_data, write_advantages

from dialrl.advantage.resolve import Origin
from dialrl.errors import InputError
from dialrl.judge.scenarios import Scenarios
from dialrl.trajectory.agreement import agreed, common, rollouts
from dialrl.trajectory.inspection import materialize
from dialrl.trajectory.lineage import Lineage, StageRecord
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.sampling import policy_digests, sampling_temperature
from dialrl.trajectory.writer import TrajectoryWriter
from dialrl.update.config import UpdateConfig
from dialrl.update.data import read_training_data
from dialrl.update.sequences import Limits


def part(path: Path, group: str, **details: object) -> Path:
    rows = [{**row, "group_id": group + row["group_id"]} for row in random_rows(2)]
    return write_advantages(path, rows, **details)


def with_records(path: Path, group: str, *records: StageRecord) -> Path:
    table = TrajectoryFile.open(part(path, group)).read()
    with TrajectoryWriter(path, table.schema) as writer:
        writer.write(table)
        writer.finish(Lineage(records))
    return path


@pytest.fixture(params=["given together", "joined into one"])
def both(request: pytest.FixtureRequest, tmp_path: Path):
    def opened(*paths: Path) -> TrajectoryFile:
        source = TrajectoryFile.open(list(paths))
        if request.param == "given together":
            return source
        materialize(source, tmp_path / "joined.parquet")
        return TrajectoryFile.open(tmp_path / "joined.parquet")

    return opened


OTHERWISE = {
    "top_p": ({"sampling": {**SAMPLING, "top_p": 0.8}}, r"was sampled with top_p 0\.8"),
    "temperature": ({"sampling": {**SAMPLING, "temperature": 0.7}}, r"temperature: .* -> "),
    "raw": ({"sampling": {**SAMPLING, "temperature": 0.7}, "logprobs_kind": "raw"}, r"holds raw log-probs"),
}


@pytest.mark.parametrize("turned", [False, True], ids=["last", "first"])
@pytest.mark.parametrize("name", OTHERWISE)
def test_a_part_that_cannot_be_trained_with_the_others_is_refused(name: str, turned: bool, both, tmp_path: Path):
    details, fault = OTHERWISE[name]
    paths = [part(tmp_path / "a.parquet", "a"), part(tmp_path / "b.parquet", "b", **details)]
    source = both(*(reversed(paths) if turned else paths))
    with pytest.raises(InputError, match=fault):
        read_training_data(source, UpdateConfig(), Limits(256))


def test_parts_that_were_drawn_alike_are_trained_together(both, tmp_path: Path):
    source = both(part(tmp_path / "a.parquet", "a"), part(tmp_path / "b.parquet", "b", policy_digest="sha256:other"))
    assert sampling_temperature(source, given=None) == 1.0
    assert policy_digests(source) == ("sha256:other",)
    assert read_training_data(source, UpdateConfig(), Limits(256)).policy_digests == ("sha256:other",)


def test_a_temperature_given_is_that_of_the_parts_that_name_none(tmp_path: Path):
    paths = [part(tmp_path / "a.parquet", "a"), with_records(tmp_path / "b.parquet", "b", StageRecord("import"))]
    source = TrajectoryFile.open(paths)
    with pytest.raises(InputError, match=r"b\.parquet' does not say at which temperature"):
        sampling_temperature(source, given=None)
    with pytest.raises(
        InputError, match=r"b\.parquet' was sampled otherwise than '.*a\.parquet': temperature: 1\.0 -> 0\.5"
    ):
        sampling_temperature(source, given=0.5)
    assert sampling_temperature(source, given=1.0) == 1.0


@pytest.mark.parametrize("details", [{"sampling": ["hot"]}, {"sampling": {"temperature": "hot"}}])
def test_settings_that_are_no_settings_are_named(details: dict[str, object], tmp_path: Path):
    with pytest.raises(InputError, match=r"its lineage has .*hot.*; expected"):
        read_data(part(tmp_path / "a.parquet", "a", **details), UpdateConfig())


@pytest.mark.parametrize("held_out", [0, 1])
def test_no_part_of_the_test_split_is_trained_on(held_out: int, both, tmp_path: Path):
    splits = ["test" if number == held_out else "train" for number in range(2)]
    source = both(
        *(
            with_records(tmp_path / f"{name}.parquet", name, StageRecord("rollout", {"split": split}))
            for name, split in zip("ab", splits, strict=True)
        )
    )
    with pytest.raises(InputError, match="was rolled out on the split 'test'"):
        read_training_data(source, UpdateConfig(), Limits(256))


def scored(path: Path, group: str, gamma: float = 0.9, weight: float = 1.0) -> Path:
    options = {"gamma": gamma, "missing": "drop"}
    details = {"weights": {"judge": weight}, "per_dialogue": []}
    return with_records(path, group, StageRecord("rollout"), StageRecord("returns", options, details=details))


@pytest.mark.parametrize(("changes", "named"), [({"gamma": 0.5}, r"gamma: 0\.9 -> 0\.5"), ({"weight": 2.0}, "weights")])
def test_returns_that_were_made_differently_get_no_advantages_together(changes, named: str, both, tmp_path: Path):
    source = both(scored(tmp_path / "a.parquet", "a"), scored(tmp_path / "b.parquet", "b", **changes))
    with pytest.raises(InputError, match=rf"scored .*{named}.*Score all of them in one go"):
        Origin.of_file(source)


def test_returns_that_were_made_alike_get_advantages_together(both, tmp_path: Path):
    assert Origin.of_file(both(scored(tmp_path / "a.parquet", "a"), scored(tmp_path / "b.parquet", "b"))).gamma == 0.9


def test_environments_that_were_held_with_other_options_are_not_judged_together(both, tmp_path: Path):
    paths = [
        with_records(
            tmp_path / f"{name}.parquet",
            name,
            StageRecord("rollout", {"environment": "demo", "environment_options": {"max_turns": turns}}),
        )
        for name, turns in (("a", 4), ("b", 6))
    ]
    source = both(*paths)
    with pytest.raises(InputError, match=r"rolled out .*max_turns: 4 -> 6.*Judge such files one at a time"):
        Scenarios(source, {}).environment("demo")


def test_the_records_of_all_parts_stay_in_what_is_made_of_them(tmp_path: Path):
    shared = StageRecord("judge", seed=1)
    paths = [
        with_records(tmp_path / f"{name}.parquet", name, StageRecord("rollout", seed=seed), shared)
        for name, seed in (("a", 1), ("b", 2))
    ]
    lineage = TrajectoryFile.open(paths).lineage
    assert [(record.stage, record.seed) for record in lineage.records] == [("rollout", 1), ("rollout", 2), ("judge", 1)]


def test_a_file_from_elsewhere_has_no_rollout(tmp_path: Path):
    paths = [
        with_records(tmp_path / "a.parquet", "a"),
        with_records(tmp_path / "b.parquet", "b", StageRecord("import")),
    ]
    assert [record for _, record in rollouts(TrajectoryFile.open(paths))] == [None, None]


def test_what_all_say_and_what_some_say():
    assert agreed([("a", {"x": 1}), ("b", {"x": 1})], done="made", advice="") == {"x": 1}
    with pytest.raises(InputError, match=r"^b was made otherwise than a: x: 1 -> 2\. Do it$"):
        agreed([("a", {"x": 1}), ("b", {"x": 2})], done="made", advice="Do it")
    assert (common([3, 3]), common([3, 4]), common([])) == (3, None, None)
