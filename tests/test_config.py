"""Configuration: defaults < file < --set < flags; wrong keys and values refused by name."""

from typing import Literal

import pytest
from pydantic import model_validator

from dialrl.config import (
    StageConfig,
    assign,
    differing_keys,
    merged,
    nearest,
    operational,
    read_yaml,
    read_yaml_section,
    resolve_config,
    semantic,
    validated,
)
from dialrl.errors import MissingInputError, UsageError


class Stop(StageConfig):
    min_turns: int = semantic(12, help="", ge=1)
    success: bool = semantic(True, help="")


class Settings(StageConfig):
    gamma: float = semantic(0.85, help="discount", ge=0, le=1)
    channels: tuple[str, ...] = semantic(("outcome",), help="")
    mode: Literal["fill", "drop"] = semantic("fill", help="")
    limit: int | None = semantic(None, help="")
    stop: Stop = semantic(Stop(), help="")
    workers: int = operational(4, help="", ge=1)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "pipeline.yaml"
    path.write_text("returns: {gamma: 0.5, mode: drop, stop: {min_turns: 3}}\nother: {gamma: 0.1}\nempty:\n")
    return path


def resolved(file=None, *assignments, section="returns", **flags):
    return resolve_config(Settings, section=section, file=file, assignments=assignments, flags=flags)


def refused(*arguments, **options):
    with pytest.raises(UsageError) as error:
        resolved(*arguments, **options)
    assert error.value.exit_code == 2
    return str(error.value)


# who wins -----------------------------------------------------------------------------------------------------------


def test_without_anything_the_defaults_hold():
    assert resolved() == Settings()


def test_the_file_wins_over_defaults_and_only_its_section_is_read(file):
    found = resolved(file)
    assert (found.gamma, found.mode, found.stop, found.workers) == (0.5, "drop", Stop(min_turns=3), 4)
    assert resolved(file, section="other").gamma == 0.1
    assert resolved(file, section="empty") == resolved(file, section="not there") == Settings()


def test_set_wins_over_the_file_and_flags_over_set(file):
    assert resolved(file, "gamma=0.6").gamma == 0.6
    assert resolved(file, "gamma=0.6", "gamma=0.7").gamma == 0.7
    assert resolved(file, "gamma=0.6", gamma=0.8).gamma == 0.8
    assert resolved(file, "gamma=0.6", gamma=None).gamma == 0.6


def test_a_dotted_key_reaches_inside_and_leaves_the_rest(file):
    assert resolved(file, "stop.success=false").stop == Stop(min_turns=3, success=False)
    assert resolved(None, "stop.min_turns=2").stop == Stop(min_turns=2)


def test_values_of_set_are_yaml():
    assert resolved(None, "channels=[a, b]").channels == ("a", "b")
    assert resolved(None, "limit=7").limit == 7
    assert resolved(None, "limit=null").limit is None
    assert resolved(None, "mode=drop").mode == "drop"
    values = {}
    assign(values, "a.b.c=x=y")
    assert values == {"a": {"b": {"c": "x=y"}}}


# what is refused ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("gama=0.9", "unknown key 'gama'. Did you mean 'gamma'?"),
        ("stop.min_turn=1", "unknown key 'stop.min_turn'. Did you mean 'min_turns'?"),
        ("zzz=1", "unknown key 'zzz'."),
        ("gamma=2", "gamma: Input should be less than or equal to 1 (got 2)"),
        ("gamma=high", "gamma: Input should be a valid number"),
        ("gamma=.nan", "gamma: Input should be a finite number"),
        ("mode=zero", "mode: Input should be 'fill' or 'drop' (got 'zero')"),
        ("stop=3", "stop: Input should be"),
        ("stop.min_turns=0", "stop.min_turns: Input should be greater than or equal to 1"),
        ("workers=1.5", "workers: Input should be a valid integer"),
    ],
)
def test_a_wrong_key_or_value_is_named_with_what_was_expected(assignment, sentence):
    assert sentence in refused(None, assignment)


def test_all_faults_are_told_at_once_with_the_place(file):
    message = refused(file, "gama=1", "mode=zero")
    assert message.startswith(f"Configuration of {file}, section 'returns': ")
    assert "gama" in message
    assert "mode" in message


@pytest.mark.parametrize("assignment", ["gamma", "=1", " =1", ""])
def test_an_assignment_without_key_or_value_is_refused(assignment):
    assert "expected key=value, for example --set gamma=0.9" in refused(None, assignment)


def test_a_key_inside_a_plain_value_is_refused():
    assert "'gamma' holds 1, which has no keys inside" in refused(None, "gamma=1", "gamma.x=2")
    assert "the value is not valid YAML" in refused(None, "gamma=[1")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("returns: [1, 2", "is not valid YAML"), ("- 1", "holds a list"), ("returns: 3", "section 'returns' holds 3")],
)
def test_a_wrong_file_is_refused(tmp_path, text, sentence):
    path = tmp_path / "p.yaml"
    path.write_text(text)
    assert sentence in refused(path)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path):
    with pytest.raises(MissingInputError, match=r"'.*nowhere\.yaml' does not exist"):
        resolved(tmp_path / "nowhere.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert "is not valid YAML" in refused(tmp_path / "binary.yaml")


def test_yaml_makes_no_objects(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("returns: !!python/object/apply:os.getcwd []")
    assert "is not valid YAML" in refused(path)


def test_a_configuration_cannot_be_changed_afterwards():
    with pytest.raises(ValueError, match="frozen"):
        Settings().gamma = 0.1
    assert Settings().updated(gamma=0.1, limit=3).gamma == 0.1
    with pytest.raises(ValueError, match="less than or equal"):
        Settings().updated(gamma=3)


# one file on top of another -----------------------------------------------------------------------------------------


def test_a_file_may_extend_another_section_by_section(tmp_path, file):
    child = tmp_path / "deep" / "child.yaml"
    child.parent.mkdir()
    child.write_text("extends: ../pipeline.yaml\nreturns: {gamma: 0.9, stop: {success: false}}")
    assert read_yaml_section(child, "returns") == {
        "gamma": 0.9,
        "mode": "drop",
        "stop": {"min_turns": 3, "success": False},
    }
    assert "extends" not in read_yaml(child)


def test_a_file_that_extends_itself_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("extends: b.yaml")
    (tmp_path / "b.yaml").write_text("extends: a.yaml")
    with pytest.raises(UsageError, match=r"'.*a\.yaml' extends itself"):
        read_yaml(tmp_path / "a.yaml")


def test_merging_goes_into_sections_and_replaces_everything_else():
    assert merged({"a": {"x": 1, "y": 2}, "b": [1]}, {"a": {"y": 3}, "b": [2], "c": 4}) == {
        "a": {"x": 1, "y": 3},
        "b": [2],
        "c": 4,
    }


def test_null_takes_away_a_mapping_of_the_base():
    assert merged({"a": {"x": 1, "y": {"z": 2}}, "b": 2}, {"a": {"y": None}}) == {"a": {"x": 1}, "b": 2}


def test_what_a_file_takes_away_its_bases_base_does_not_bring_back(tmp_path):
    (tmp_path / "far.yaml").write_text("returns: {options: {a: 1, b: {c: 2}}}")
    (tmp_path / "near.yaml").write_text("extends: far.yaml\nreturns: {options: {b: {d: 3}}}")
    (tmp_path / "own.yaml").write_text("extends: near.yaml\nreturns: {options: {b: null}}")
    assert read_yaml(tmp_path / "own.yaml") == {"returns": {"options": {"a": 1}}}


def test_null_is_the_default_of_a_field_that_has_no_null_of_its_own():
    found = Settings.model_validate({"gamma": None, "stop": None, "limit": None})
    assert (found.gamma, found.stop, found.limit) == (0.85, Stop(), None)


def test_null_stays_null_where_it_means_something():
    class Batches(StageConfig):
        rows: int | None = semantic(64, help="null: all")

    assert Batches.model_validate({"rows": None}).rows is None


# sentences ----------------------------------------------------------------------------------------------------------


def test_the_sections_own_name_before_a_key_is_told_to_go():
    assert "its keys stand here without its name: --set gamma=1" in refused(None, "returns.gamma=1")


def test_a_key_of_a_section_that_stands_outside_all_is_asked_about():
    class Whole(StageConfig):
        one: Settings = semantic(Settings(), help="")
        two: Settings | None = semantic(None, help="")

    with pytest.raises(UsageError, match=r"unknown key 'gamma'\. Did you mean 'one\.gamma' or 'two\.gamma'\?"):
        validated(Whole, {"gamma": 1}, where="'x'")


def test_a_contradiction_is_one_sentence_without_the_whole_section():
    class Both(StageConfig):
        a: int = semantic(1, help="")

        @model_validator(mode="after")
        def _none(self):
            raise ValueError("a and b are both set")

    with pytest.raises(UsageError) as error:
        validated(Both, {"a": 7}, where="'x'")
    assert str(error.value) == "Configuration of 'x': a and b are both set"


def test_a_folder_is_no_pipeline(tmp_path):
    with pytest.raises(UsageError, match="is a folder; expected a pipeline YAML file"):
        read_yaml(tmp_path)


# semantic and operational -------------------------------------------------------------------------------------------


def test_only_semantic_fields_count_for_resuming():
    values = Settings(workers=9, channels=("a",)).semantic_values()
    assert values == {
        "gamma": 0.85,
        "channels": ["a"],
        "mode": "fill",
        "limit": None,
        "stop": {"min_turns": 12, "success": True},
    }
    assert Settings.is_operational("workers")
    assert not Settings.is_operational("gamma")


def test_differences_are_named_one_a_key():
    old, new = Settings().semantic_values(), Settings(gamma=0.9, limit=3, workers=1).semantic_values()
    assert differing_keys(old, new) == ["gamma: 0.85 -> 0.9", "limit: None -> 3"]
    assert differing_keys({"a": 1}, {"b": None}) == ["a: 1 -> None"]
    assert differing_keys(old, old) == []


def test_the_nearest_name_is_a_question_or_nothing():
    assert nearest("advantge", ["returns", "advantage"]) == " Did you mean 'advantage'?"
    assert nearest("xyz", ["returns", "advantage"]) == ""


def test_a_key_that_stands_twice_is_refused_with_its_line(tmp_path):
    file = tmp_path / "twice.yaml"
    file.write_text("rollout: {groups: 2}\njudge: {}\nrollout: {samples: 3}\n")
    with pytest.raises(UsageError, match="line 3: the key 'rollout' stands twice"):
        read_yaml(file)


def test_a_shipped_pipeline_can_be_extended_by_its_bare_name(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text("extends: demo-grpo.yaml\nreturns: {gamma: 0.5}")
    read = read_yaml(own)
    assert (read["advantage"]["preset"], read["returns"]["gamma"]) == ("grpo", 0.5)


def test_a_file_beside_it_comes_before_a_shipped_pipeline_of_that_name(tmp_path):
    (tmp_path / "demo.yaml").write_text("policy: mine")
    (tmp_path / "own.yaml").write_text("extends: demo.yaml")
    assert read_yaml(tmp_path / "own.yaml") == {"policy": "mine"}


def test_extending_what_is_nowhere_names_both_places(tmp_path):
    (tmp_path / "own.yaml").write_text("extends: nowhere.yaml")
    with pytest.raises(MissingInputError, match=r"extends 'nowhere\.yaml', but there is no .* and no shipped pipeline"):
        read_yaml(tmp_path / "own.yaml")
