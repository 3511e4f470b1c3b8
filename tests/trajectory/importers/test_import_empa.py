"""Published EMPA dialogues become judged trajectories: what was not judged stays unknown, what was is kept as it is."""

import json

import pytest
from tests.published_dialogues import COLLAPSE, OSCILLATION, SUCCESS, TURN_LIMIT, published, write_folder
from tests.reference_data import reference

from dialrl.errors import InputError, MissingInputError, OutputExistsError
from dialrl.state.rubric import load_rubric
from dialrl.state.stop import Stop, StopRules, StopTracker, stop_turn, success_kind
from dialrl.trajectory.importers.config import ImportEmpaConfig
from dialrl.trajectory.importers.empa import import_empa
from dialrl.trajectory.importers.empa_file import read_published
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import table_to_dialogues

GOOD = {"C.Prog": 1, "A.Prog": 2}
BAD = {"P.Neg": -1}


def rows_of(tmp_path, *folders, **options):
    output = tmp_path / "out.parquet"
    import_empa(folders, output, ImportEmpaConfig(**options), overwrite=True)
    return TrajectoryFile.open(output, stage="judge").read().to_pylist()


def one(tmp_path, dialogue, **options):
    return rows_of(tmp_path, write_folder(tmp_path / "model", dialogue), **options)


# what a turn becomes ------------------------------------------------------------------------------------------------


def test_a_turn_is_the_users_line_the_reply_and_the_judgement_after_it(tmp_path):
    rows = one(tmp_path, published([GOOD, BAD], deficit=(-6, -8, -4)))
    assert [row["turn"] for row in rows] == [0, 1]
    assert rows[0]["messages"] == [{"role": "user", "name": None, "content": "I had just planted the leeks. (1)"}]
    assert rows[0]["reply"] == "Which bed did the water reach first?"
    assert [row["deficit"] for row in rows] == [[-6, -8, -4]] * 2
    assert [row["increment"] for row in rows] == [[1, 3, 0], [0, 0, -2]]
    assert [row["position"] for row in rows] == [[-5, -5, -4], [-5, -5, -6]]
    assert [row["judge_status"] for row in rows] == ["ok", "ok"]
    assert [row["position_estimated"] for row in rows] == [False, False]
    assert rows[0]["director"] == {"tool": None, "argument": None, "guidance": "Wait."}


def test_grades_hold_level_evidence_and_reasoning(tmp_path):
    grades = {grade["indicator"]: grade for grade in one(tmp_path, published([BAD]))[0]["grades"]}
    assert list(grades) == ["C.Prog", "C.Neg", "A.Prog", "A.Neg", "P.Prog", "P.Neg"]
    assert grades["P.Neg"]["level"] == -1
    assert grades["P.Neg"]["evidence"] == "That soil took you years."
    assert grades["P.Neg"]["reasoning"] == "Level -1 it is."
    assert grades["C.Prog"]["evidence"] is None  # published as "0": there was none


def test_reasoning_can_be_left_out(tmp_path):
    rows = one(tmp_path, published([GOOD]), reasoning=False)
    assert {grade["reasoning"] for grade in rows[0]["grades"]} == {None}


@pytest.mark.parametrize("form", [None, {}])
def test_a_turn_without_a_form_is_missing_and_carries_the_position_forward(tmp_path, form):
    dialogue = published([GOOD, None, GOOD], deficit=(-6, -8, -4))
    dialogue["epj"]["trajectory"][2]["mdep_analysis"] = form
    rows = one(tmp_path, dialogue)
    assert [row["judge_status"] for row in rows] == ["ok", "missing", "ok"]
    assert [row["increment"] for row in rows] == [[1, 3, 0], None, [1, 3, 0]]
    assert [row["position"] for row in rows] == [[-5, -5, -4], [-5, -5, -4], [-4, -2, -4]]
    assert [row["position_estimated"] for row in rows] == [False, True, False]
    assert rows[1]["grades"] is None
    assert rows[1]["judge_error"] == "no form in the published file"


def test_a_turn_without_a_point_is_missing_as_well(tmp_path):
    dialogue = published([GOOD, GOOD], deficit=(-6, -8, -4))
    del dialogue["epj"]["trajectory"][2]
    rows = one(tmp_path, dialogue)
    assert [row["judge_status"] for row in rows] == ["ok", "missing"]
    assert rows[1]["position"] == rows[0]["position"]


def test_a_misspelt_level_is_named_and_the_published_increment_kept(tmp_path):
    dialogue = published([GOOD])
    form = dialogue["epj"]["trajectory"][1]["mdep_analysis"]
    del form["P_Neg_level"]
    form["P Neg_level"] = -1
    row = one(tmp_path, dialogue)[0]
    assert row["judge_status"] == "repaired"
    assert row["judge_error"] == "P_Neg_level stands as 'P Neg_level' (-1), counted as 0"
    assert row["increment"] == [1, 3, 0]
    assert "P.Neg" not in [grade["indicator"] for grade in row["grades"]]


@pytest.mark.parametrize(("value", "level"), [("2", 2), (2.0, 2)])
def test_a_level_may_be_text_or_have_a_decimal_point(tmp_path, value, level):
    dialogue = published([{"A.Prog": 2}])
    dialogue["epj"]["trajectory"][1]["mdep_analysis"]["A_Prog_level"] = value
    assert one(tmp_path, dialogue)[0]["grades"][2]["level"] == level


@pytest.mark.parametrize("value", [True, None, "high", 1.5, [1]])
def test_what_is_no_level_gets_no_grade(tmp_path, value):
    dialogue = published([{}])
    dialogue["epj"]["trajectory"][1]["mdep_analysis"]["C_Prog_level"] = value
    row = one(tmp_path, dialogue)[0]
    assert row["judge_status"] == "repaired"
    assert "C_Prog_level is" in row["judge_error"]
    assert len(row["grades"]) == 5


def test_an_increment_that_its_levels_do_not_give_is_counted_and_kept(tmp_path):
    dialogue = published([GOOD, GOOD])
    dialogue["epj"]["trajectory"][2]["v_t"] = [1, 1, 1]
    summary = import_empa([write_folder(tmp_path / "model", dialogue)], tmp_path / "out.parquet")
    assert any("1 turns have an increment other than their levels give" in warning for warning in summary.warnings)
    assert TrajectoryFile.open(tmp_path / "out.parquet").read()["increment"][1].as_py() == [1, 1, 1]


def test_messages_after_the_last_reply_are_final_messages(tmp_path):
    dialogue = published([GOOD])
    dialogue["history"].append({"role": "actor", "content": "I will try the upper bed."})
    rows = one(tmp_path, dialogue)
    assert [message["content"] for message in rows[0]["final_messages"]] == ["I will try the upper bed."]


# endings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "ending", "outcome", "stop", "terminated", "truncated"),
    [
        (SUCCESS, "success", 1.0, 2, True, False),
        (COLLAPSE, "collapse", 0.0, 2, True, False),
        ("Failure: Persistent Regression (70% negative in 8 turns)", "regression", 0.0, 2, True, False),
        (OSCILLATION, "oscillation", 0.0, 2, True, False),
        (TURN_LIMIT, "turn_limit", 0.0, None, False, True),
    ],
)
def test_ending_outcome_and_stop_turn(tmp_path, reason, ending, outcome, stop, terminated, truncated):
    rows = one(tmp_path, published([GOOD] * 3, reason=reason))
    last = rows[-1]
    assert (last["end_reason"], last["outcome"]) == (ending, outcome)
    assert (last["terminated"], last["truncated"]) == (terminated, truncated)
    assert [row["stop_turn"] for row in rows] == [stop] * 3
    assert [row["end_reason"] for row in rows[:-1]] == [None, None]
    assert [row["outcome"] for row in rows[:-1]] == [None, None]


def test_a_dialogue_that_broke_is_data_with_a_status(tmp_path):
    dialogue = published([GOOD, GOOD], reason="Connection lost")
    dialogue["status"] = "failed"
    rows = one(tmp_path, dialogue)
    assert [row["status"] for row in rows] == ["error", "error"]
    assert (rows[-1]["end_reason"], rows[-1]["outcome"], rows[-1]["error"]) == ("error", None, "Connection lost")
    assert (rows[-1]["terminated"], rows[-1]["truncated"]) == (False, False)


# folders ------------------------------------------------------------------------------------------------------------


def test_groups_are_scripts_and_samples_follow_the_order_of_the_folders(tmp_path):
    first = write_folder(tmp_path / "zeta", published([GOOD], script="script_2"), published([GOOD], script="script_10"))
    second = write_folder(tmp_path / "alpha", published([BAD, BAD], script="script_2"))
    keys = [(row["group_id"], row["sample"], row["turn"]) for row in rows_of(tmp_path, first, second)]
    assert keys == [("script_10", 0, 0), ("script_2", 0, 0), ("script_2", 1, 0), ("script_2", 1, 1)]
    swapped = [(row["group_id"], row["sample"]) for row in rows_of(tmp_path, second, first)]
    assert swapped == [("script_10", 1), ("script_2", 0), ("script_2", 0), ("script_2", 1)]


def test_lineage_names_the_models_and_digests_of_the_folders(tmp_path):
    folder = write_folder(tmp_path / "mine", published([GOOD], model="invented/other"))
    import_empa([folder], tmp_path / "out.parquet")
    record = TrajectoryFile.open(tmp_path / "out.parquet").lineage.record("import")
    assert record.inputs[0].name == "mine"
    assert record.details["samples"]["0"]["test_model_name"] == "invented/other"
    assert record.details["rubric"] == load_rubric().digest()


def test_same_folders_give_the_same_bytes(tmp_path):
    folder = write_folder(tmp_path / "model", published([GOOD, None]), published([BAD], script="script_002"))
    contents = []
    for name in ("one.parquet", "two.parquet"):
        import_empa([folder], tmp_path / name)
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1]


def test_different_deficits_in_a_group_are_counted(tmp_path):
    first = write_folder(tmp_path / "a", published([GOOD], deficit=(-6, -8, -4)))
    second = write_folder(tmp_path / "b", published([GOOD], deficit=(-6, -8, -5)))
    summary = import_empa([first, second], tmp_path / "out.parquet")
    assert any("different initial deficits (first: script_001)" in warning for warning in summary.warnings)


def broken(**changes):
    dialogue = published([GOOD])
    for path, value in changes.items():
        place = dialogue
        *parents, last = path.split("__")
        for key in parents:
            place = place[int(key) if key.isdigit() else key]
        place[last] = value
    return dialogue


@pytest.mark.parametrize(
    ("dialogue", "message"),
    [
        (broken(script_id=None), "script_id"),
        (broken(history=[]), "no reply of the policy"),
        (broken(epj__K=3), "judged every 3 turns"),
        (broken(termination_reason="It rained"), "termination_reason 'It rained' is not known"),
        (broken(epj__trajectory__1__P_t=[1, 2]), "turn 1: P_t and v_t need 3 axes"),
        (broken(epj__trajectory__1__turn=0), "holds a turn twice"),
        (broken(epj__trajectory__1__turn=7), "judges turn 7 but history holds 1 replies"),
        (broken(epj__trajectory=[]), r"epj\.trajectory"),
        (broken(history__0__role="narrator"), r"history\.0\.role"),
    ],
)
def test_a_file_of_another_shape_is_refused_naming_file_and_key(tmp_path, dialogue, message):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "x_result.json").write_text(json.dumps(dialogue), encoding="utf-8")
    with pytest.raises(InputError, match=rf"x_result\.json'.*{message}"):
        import_empa([folder], tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


def test_a_lone_surrogate_is_refused_naming_dialogue_turn_and_column(tmp_path):
    dialogue = published([GOOD, GOOD])
    dialogue["history"][3]["content"] = "\ud800"
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "x_result.json").write_text(json.dumps(dialogue), encoding="ascii")
    with pytest.raises(InputError, match=r"'script_001/0', turn 1, column 'reply' holds a lone surrogate"):
        import_empa([folder], tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


def test_text_that_is_no_json_is_refused(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for content in (b"{", b"\xff", b'{"status": NaN}'):
        (folder / "x_result.json").write_bytes(content)
        with pytest.raises(InputError, match="not valid JSON"):
            import_empa([folder], tmp_path / "out.parquet")


def test_wrong_places_are_refused(tmp_path):
    output = tmp_path / "out.parquet"
    empty, file = tmp_path / "empty", tmp_path / "file.json"
    empty.mkdir()
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(MissingInputError, match="does not exist"):
        import_empa([tmp_path / "nothing"], output)
    with pytest.raises(InputError, match=r"no \*_result.json"):
        import_empa([empty], output)
    with pytest.raises(InputError, match="is a file; expected a folder"):
        import_empa([file], output)


def test_a_script_twice_in_a_folder_is_refused(tmp_path):
    folder = write_folder(tmp_path / "model", published([GOOD]))
    (folder / "copy_result.json").write_text(json.dumps(published([GOOD])), encoding="utf-8")
    with pytest.raises(InputError, match="both are script 'script_001'"):
        import_empa([folder], tmp_path / "out.parquet")


def test_an_existing_output_is_refused_before_anything_is_read(tmp_path):
    output = tmp_path / "out.parquet"
    output.write_bytes(b"precious")
    with pytest.raises(OutputExistsError):
        import_empa([tmp_path / "nothing"], output)
    assert output.read_bytes() == b"precious"


# published dialogues ------------------------------------------------------------------------------------------------


def published_files():
    return sorted(reference("empa").glob("*/script_*_result.json"))


def test_replay_reproduces_outcome_and_stop_turn_of_all_published_dialogues():
    rules = StopRules(oscillation=True, max_turns=45)
    seen = {}
    for path in published_files():
        dialogue = read_published(path)
        points = [dialogue.points[turn] for turn in sorted(dialogue.points)]
        increments = [point.increment if point.analysis else None for point in points]
        positions = [point.position for point in points]
        expected = Stop(len(points) - 1, dialogue.end_reason)
        assert stop_turn(positions, dialogue.epj.deficit, increments, rules) == expected, path
        tracker = StopTracker(dialogue.epj.deficit, rules)
        for increment in increments:
            tracker.add(increment)
        assert tracker.stop == expected, path
        if dialogue.end_reason == "success":
            stated = "geometric" if "Geometric" in dialogue.termination_reason else "positional"
            assert success_kind(positions[-1], dialogue.epj.deficit, rules) == stated, path
        seen[dialogue.end_reason] = seen.get(dialogue.end_reason, 0) + 1
    assert seen == {"success": 33, "collapse": 78, "oscillation": 1, "turn_limit": 8}


def test_published_deficits_and_increments_follow_from_their_levels():
    rubric, turns = load_rubric(), 0
    for path in published_files():
        content = json.loads(path.read_text(encoding="utf-8"))["epj"]
        levels = content["iedr_details"]["filled_iedr"]
        items = {item.item: levels[item.item] for item in rubric.deficit}
        assert list(rubric.deficit_from_levels(items)) == content["P_0_initial_deficit"], path
        for point in content["trajectory"][1:]:
            form = point.get("mdep_analysis")
            if form:
                found = {name: form.get(f"{name.replace('.', '_')}_level", 0) for name in rubric.indicator_names}
                assert list(rubric.increment_from_levels(found)) == point["v_t"], (path, point["turn"])
                turns += 1
    assert turns == 2581


def test_all_published_dialogues_come_in(tmp_path):
    folders = sorted(path for path in reference("empa").iterdir() if path.is_dir())
    summary = import_empa(folders, tmp_path / "all.parquet")
    assert summary.counts == {
        "groups": 30,
        "dialogues": 120,
        "turns": 2607,
        "missing_judgements": 26,
        "repaired_judgements": 2,
    }
    assert summary.warnings == ()
    dialogues = list(table_to_dialogues(TrajectoryFile.open(tmp_path / "all.parquet").read()))
    assert len(dialogues) == 120
    assert all(row["judge_status"] != "missing" or row["increment"] is None for rows in dialogues for row in rows)
