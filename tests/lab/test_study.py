"""A study runs what is missing, chooses step sizes on seeds of their own, and its table holds every run."""

import json
from pathlib import Path

import pytest
from tests.lab.watched import Watched

from dialrl.environment.demo.planner import DemoReference
from dialrl.errors import InputError, OutputExistsError, UsageError
from dialrl.evaluate.study_table import COLUMNS, read_table
from dialrl.lab.config import FastConfig, StudyConfig
from dialrl.lab.fast import FastPoint, play_fast
from dialrl.lab.runs import RunFiles, RunKey, RunResult, read_references
from dialrl.lab.settings import SETTINGS, setting
from dialrl.lab.study import FIRST_TUNING_SEED, choose, run_study

TINY = StudyConfig(
    presets=("mica", "grpo"),
    settings=("short",),
    step_sizes=(4.0, 16.0),
    tuning_seeds=1,
    seeds=2,
    iterations=2,
    groups=4,
    samples=4,
    evaluate_every=1,
    evaluate_repeats=1,
    jobs=1,
)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished tiny study; tests read it and do not change it."""
    folder = tmp_path_factory.mktemp("lab") / "study"
    run_study(folder, TINY)
    return folder


def finished(preset: str, step_size: float, final: float) -> RunResult:
    """A run with nothing but a final share."""
    point = FastPoint(0, 0.0, final, 0.0, 0.0, 0.0, 0.0, None, 0, 0)
    return RunResult(RunKey("fast", "short", preset, step_size, 0, {}), (point,), DemoReference(0, 1, 2, 2), 1.0)


def test_the_table_holds_every_run_and_evaluation(study: Path) -> None:
    rows = read_table(study / "lab.parquet").to_pylist()
    assert list(rows[0]) == list(COLUMNS)
    tuning = {(r["preset"], r["step_size"], r["seed"]) for r in rows if r["phase"] == "tuning"}
    assert tuning == {(preset, step, FIRST_TUNING_SEED) for preset in TINY.presets for step in TINY.step_sizes}
    final = {(r["preset"], r["seed"]) for r in rows if r["phase"] == "final"}
    assert final == {(preset, seed) for preset in TINY.presets for seed in (0, 1)}
    assert len(rows) == (4 + 4) * 3
    assert {r["setting"] for r in rows} == {"short"}
    assert {r["dialogues"] for r in rows if r["iteration"] == 2} == {32}


def test_every_run_is_the_run_that_its_row_names(study: Path) -> None:
    rows = [r for r in read_table(study / "lab.parquet").to_pylist() if r["phase"] == "final" and r["seed"] == 1]
    last = next(r for r in rows if r["preset"] == "grpo" and r["iteration"] == 2)
    config = FastConfig(
        iterations=2, groups=4, samples=4, learning_rate=last["step_size"], preset="grpo", seed=1, turn_limit=5,
        evaluate_every=1, evaluate_repeats=1,
    )  # fmt: skip
    known = DemoReference(last["silent"], last["myopic"], last["optimum"], last["clairvoyant"])
    assert play_fast(config, known).curve[-1].value == last["value"]


def test_all_presets_see_the_same_number_of_dialogues_and_of_updates(study: Path) -> None:
    rows = read_table(study / "lab.parquet").to_pylist()
    assert len({(r["iteration"], r["dialogues"]) for r in rows}) == 3


def test_a_finished_study_plays_nothing_again_and_says_the_same(study: Path, tmp_path: Path) -> None:
    before = (study / "lab.parquet").read_bytes()
    summary = run_study(study, TINY, resume=True)
    assert summary.counts == {"runs": 8, "played_now": 0}
    assert (study / "lab.parquet").read_bytes() == before


def test_what_is_missing_after_a_kill_is_played_and_nothing_else(tmp_path: Path) -> None:
    whole = run_study(tmp_path / "a", TINY)
    lost = sorted((tmp_path / "a" / "runs" / "short").glob("grpo-*"))[:2]
    for path in lost:
        path.unlink()
    again = run_study(tmp_path / "a", TINY, resume=True)
    assert again.counts["played_now"] == len(lost) == 2
    assert again.figures == whole.figures


def test_a_wider_plan_plays_only_what_is_new(tmp_path: Path) -> None:
    narrow = TINY.updated(presets=("mica",))
    run_study(tmp_path / "a", narrow)
    wide = run_study(tmp_path / "a", narrow.updated(presets=("mica", "rloo"), seeds=3), resume=True)
    assert wide.counts == {"runs": 10, "played_now": 2 + 3 + 1}


def test_two_processes_find_what_one_finds(study: Path, tmp_path: Path) -> None:
    run_study(tmp_path / "both", TINY.updated(jobs=2))
    one, two = (read_table(folder / "lab.parquet").drop(["seconds"]) for folder in (study, tmp_path / "both"))
    assert one.equals(two)


def test_a_used_folder_is_refused_without_resume_and_emptied_by_overwrite(tmp_path: Path) -> None:
    narrow = TINY.updated(presets=("mica",), step_sizes=(4.0,), seeds=1)
    run_study(tmp_path / "a", narrow)
    with pytest.raises(OutputExistsError, match="--resume to play only what is missing"):
        run_study(tmp_path / "a", narrow)
    assert run_study(tmp_path / "a", narrow, overwrite=True).counts["played_now"] == 2


def test_the_step_size_with_the_best_mean_final_share_is_chosen() -> None:
    tuned = [finished("mica", 4.0, 0.5), finished("mica", 4.0, 0.7), finished("mica", 8.0, 0.9), finished("mica", 8, 0)]
    chosen = choose("short", "mica", [*tuned, finished("grpo", 4.0, 9.0)], (8.0, 4.0))
    assert (chosen.step_size, chosen.at_edge) == (4.0, True)
    inside = choose("short", "mica", [finished("mica", step, -abs(step - 2)) for step in (1, 2, 3)], (1, 2, 3))
    assert (inside.step_size, inside.at_edge) == (2, False)


def test_of_equally_good_step_sizes_the_smaller_is_chosen() -> None:
    tuned = [finished("mica", step, 0.5) for step in (4.0, 8.0)]
    assert choose("short", "mica", tuned, (8.0, 4.0)).step_size == 4.0


@pytest.mark.parametrize(
    ("preset", "what"),
    [("igpo", "the policy's belief"), ("a2tgpo", "the policy's belief"), ("itpo", "an implicit reward model")],
)
def test_a_preset_that_needs_what_the_world_lacks_is_refused_before_any_run(
    preset: str, what: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=f"'{preset}' needs {what}"):
        run_study(tmp_path / "a", TINY.updated(presets=("mica", preset)))
    assert not (tmp_path / "a").exists()


def test_an_unknown_setting_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Did you mean 'delayed'"):
        run_study(tmp_path / "a", TINY.updated(settings=("delay",)))


def test_every_setting_is_a_valid_world() -> None:
    for each in SETTINGS.values():
        config = FastConfig().updated(**each.changes)
        assert (config.turn_limit, config.extra_trust) == (each.turn_limit, each.extra_trust)
    assert setting("short").turn_limit == 5


def test_other_options_never_share_a_file() -> None:
    def key(**options: object) -> RunKey:
        return RunKey("fast", "short", "mica", 4.0, 0, options)

    names = {key(iterations=60).file_name, key(iterations=61).file_name, key(iterations=60, gamma=1.0).file_name}
    assert len(names) == 3
    assert key(a=1, b=2).file_name == key(b=2, a=1).file_name


def test_a_run_from_before_an_option_existed_is_one_with_that_option_at_its_default(tmp_path: Path) -> None:
    def key(**options: object) -> RunKey:
        return RunKey("fast", "short", "mica", 4.0, 0, options, {"iterations": 60, "clip": None})

    files, before = RunFiles(tmp_path), key(iterations=50)
    files.write(RunResult(before, finished("mica", 4.0, 0.5).curve, DemoReference(0, 1, 2, 2), 1.0))
    found = files.read(key(iterations=50, clip=None))
    assert found is not None
    assert found.curve[-1].share == 0.5
    for other in (key(iterations=50, clip=0.2), key(iterations=60, clip=None), key(iterations=50, new=1), key()):
        assert not files.has(other)


def test_a_damaged_run_is_named(tmp_path: Path) -> None:
    files, run = RunFiles(tmp_path), finished("mica", 4.0, 0.5)
    files.write(run)
    assert files.read(run.key) == run
    path = tmp_path / run.key.file_name
    path.write_text(path.read_text()[:50])
    with pytest.raises(InputError, match="Remove it; it is run again"):
        files.read(run.key)


def test_exact_values_are_kept_beside_the_runs(study: Path) -> None:
    known = read_references(study / "references.json")
    assert known[5, 0].myopic == pytest.approx(2.7351, abs=1e-4)
    stored = json.loads((study / "references.json").read_text())
    assert [(each["turn_limit"], each["extra_trust"]) for each in stored] == [(5, 0)]


def test_the_page_of_tables_holds_every_preset_in_every_setting(study: Path) -> None:
    page = (study / "table.md").read_text()
    final = page.partition("### Final share of the optimum")[2].partition("###")[0].strip().splitlines()
    assert final[:2] == ["| preset | short |", "| --- | --- |"]
    assert [line.split(" | ")[0] for line in final[2:]] == ["| `mica`", "| `grpo`"]
    assert "| `myopic` | 0.435 |" in page
    assert page.count("### ") == 8


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"presets": ("mica", "grpo", "mica")}, "preset mica stands twice"),
        ({"settings": ("short", "short")}, "setting short stands twice"),
        ({"step_sizes": (4.0, 4.0)}, r"step size 4\.0 stands twice"),
        ({"step_sizes": (4.0, 0.0)}, "must all be above 0"),
        ({"groups": 241}, "less than or equal to 240"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        TINY.updated(**changes)


def test_progress_counts_only_what_is_left_to_do(study: Path, tmp_path: Path) -> None:
    for folder, left in ((tmp_path / "new", 8), (study, 0)):
        watched = Watched()
        run_study(folder, TINY, resume=True, progress=watched)
        assert (watched.total["lab study"], watched.done["lab study"]) == (left, left)
    next((tmp_path / "new" / "runs" / "short").glob("mica-step4-*")).unlink()
    watched = Watched()
    run_study(tmp_path / "new", TINY, resume=True, progress=watched)
    assert watched.total["lab study"] == watched.done["lab study"] == 1 + 4  # final runs cannot be told before tuning
