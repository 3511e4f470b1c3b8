"""The shipped rubric carries the published scores and units, and a rubric refuses what does not fit it."""

from itertools import product

import pytest
import yaml

from dialrl.errors import InputError, MissingInputError, UsageError
from dialrl.resources import resource
from dialrl.state.rubric import Rubric, load_rubric

SUPPORT = load_rubric()

SCORES = {
    "C.Prog": {0: 0, 1: 1, 2: 3},
    "C.Neg": {0: 0, -1: -2, -2: -4},
    "A.Prog": {0: 0, 1: 1, 2: 3},
    "A.Neg": {0: 0, -1: -2, -2: -5},
    "P.Prog": {0: 0, 1: 1, 2: 3},
    "P.Neg": {0: 0, -1: -2, -2: -5},
}
UNITS = {"C.1": -2, "C.2": -2, "C.3": -3, "A.1": -2, "A.2": -4, "A.3": -3, "P.1": -2, "P.2": -4, "P.3": -3}


def shipped() -> dict:
    return yaml.safe_load(resource("rubrics/support.yaml").read_text(encoding="utf-8"))


def test_shipped_rubric_has_the_published_axes_scores_and_units():
    assert SUPPORT.axis_names == ("C", "A", "P")
    assert {i.name: {lv.level: lv.score for lv in i.levels} for i in SUPPORT.indicators} == SCORES
    assert {item.item: item.unit for item in SUPPORT.deficit} == UNITS
    assert all([level.level for level in item.levels] == [0, 1, 2, 3] for item in SUPPORT.deficit)
    assert [i.axis for i in SUPPORT.indicators] == ["C", "C", "A", "A", "P", "P"]


def test_deficit_of_the_worked_example():
    levels = dict(zip(UNITS, (2, 2, 3, 2, 2, 2, 1, 2, 1), strict=True))
    assert SUPPORT.deficit_from_levels(levels) == (-17, -18, -13)


def test_increment_is_the_sum_of_scores_not_of_levels():
    levels = {"C.Prog": 2, "C.Neg": 0, "A.Prog": 1, "A.Neg": -1, "P.Prog": 0, "P.Neg": -2}
    assert SUPPORT.increment_from_levels(levels) == (3, -1, -5)
    for progress, harm in product((0, 1, 2), (0, -1, -2)):
        levels = dict.fromkeys(SCORES, 0) | {"A.Prog": progress, "A.Neg": harm}
        expected = SCORES["A.Prog"][progress] + SCORES["A.Neg"][harm]
        assert SUPPORT.increment_from_levels(levels) == (0, expected, 0)


def test_order_of_the_levels_given_does_not_matter():
    levels = {"P.Neg": -1, "C.Prog": 1, "A.Neg": 0, "C.Neg": -2, "P.Prog": 2, "A.Prog": 1}
    assert SUPPORT.increment_from_levels(levels) == SUPPORT.increment_from_levels(dict(reversed(levels.items())))


@pytest.mark.parametrize("level", [2, -3, 1])
def test_level_out_of_range_is_refused_and_never_clipped(level):
    levels = dict.fromkeys(SCORES, 0) | {"C.Neg": level}
    with pytest.raises(InputError, match=r"'C.Neg' has no level .*\[0, -1, -2\]"):
        SUPPORT.increment_from_levels(levels)


def test_deficit_level_out_of_range_is_refused():
    with pytest.raises(InputError, match=r"'P\.3' has no level 4"):
        SUPPORT.deficit_from_levels(dict.fromkeys(UNITS, 0) | {"P.3": 4})


def test_absent_indicator_is_refused_by_name():
    levels = dict.fromkeys(SCORES, 0)
    del levels["P.Neg"]
    with pytest.raises(InputError, match=r"no level for \['P.Neg'\]"):
        SUPPORT.increment_from_levels(levels)


def test_unknown_indicator_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match=r"has no 'C.Porg'.*Did you mean 'C.Prog'"):
        SUPPORT.increment_from_levels(dict.fromkeys(SCORES, 0) | {"C.Porg": 1})


def test_a_rubric_may_have_any_axes(tmp_path):
    content = shipped()
    content["axes"] = [{"name": "trust", "label": "trust", "need": "They keep their word."}]
    content["deficit"] = [{**content["deficit"][0], "axis": "trust", "unit": -1.5}]
    content["indicators"] = [{**content["indicators"][0], "axis": "trust"}]
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    mine = load_rubric(file)
    assert mine.axis_names == ("trust",)
    assert mine.deficit_from_levels({"C.1": 3}) == (-4.5,)
    assert mine.increment_from_levels({"C.Prog": 2}) == (3,)
    assert load_rubric(str(file)) == mine


def test_digest_follows_the_content():
    content = shipped()
    assert Rubric.model_validate(content).digest() == SUPPORT.digest()
    content["rules"][0] += "!"
    assert Rubric.model_validate(content).digest() != SUPPORT.digest()


def change(path: list, value) -> dict:
    content = shipped()
    place = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (change(["indicators", 0, "axis"], "X"), "axis 'X' is not one of"),
        (change(["indicators", 1, "name"], "C.Prog"), "indicator 'C.Prog' stands twice"),
        (change(["axes", 1, "name"], "C"), "axis 'C' stands twice"),
        (change(["deficit", 1, "item"], "C.1"), "deficit item 'C.1' stands twice"),
        (change(["indicators", 0, "levels", 1, "level"], 0), "level '0' stands twice"),
        (change(["indicators", 0, "levels", 1, "score"], float("nan")), "indicators.0.levels.1.score"),
        (change(["indicatorz"], []), "unknown key 'indicatorz'. Did you mean 'indicators'"),
    ],
)
def test_broken_rubric_file_is_refused_naming_the_fault(tmp_path, content, message):
    file = tmp_path / "broken.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        load_rubric(file)


def test_missing_rubric_is_named():
    with pytest.raises(MissingInputError, match=r"rubrics/empathie\.yaml"):
        load_rubric("empathie")
