"""Parts by name: built in or from an installed package; wrong names and options are told, none is hidden."""

from types import SimpleNamespace

import pytest

from dialrl import plugins
from dialrl.errors import UsageError

BUILT_IN = {"fraction": ("fractions", "Fraction"), "counter": ("collections", "Counter")}


def point(name, value):
    return SimpleNamespace(
        name=name, value="their.module", dist=SimpleNamespace(name="their-package"), load=lambda: value
    )


def broken(name):
    def load():
        raise ModuleNotFoundError("no 'ahead'")

    return SimpleNamespace(name=name, value="their.module", dist=SimpleNamespace(name="their-package"), load=load)


@pytest.fixture
def installed(monkeypatch):
    """Entry points of other packages; the list can be filled by the test."""
    points = []
    monkeypatch.setattr(plugins, "entry_points", lambda group: points if group == "dialrl.parts" else [])
    return points


def test_a_built_in_part_is_imported_when_it_is_asked_for(installed):
    assert plugins.make("parts", "fraction", {"numerator": 1, "denominator": 2}, built_in=BUILT_IN) == 0.5


def test_an_installed_part_is_found_under_its_kind_only(installed):
    installed.append(point("mine", dict))
    assert plugins.make("parts", "mine", {"a": 1}, built_in=BUILT_IN) == {"a": 1}
    with pytest.raises(UsageError, match="'mine' is none of the judges"):
        plugins.find("judges", "mine", built_in=BUILT_IN)


def test_an_unknown_name_is_answered_with_the_nearest_and_all_known(installed):
    installed.append(point("mine", dict))
    with pytest.raises(UsageError, match=r"'fracton' is none of the parts\. Did you mean 'fraction'\?.*counter, mine"):
        plugins.find("parts", "fracton", built_in=BUILT_IN)


@pytest.mark.parametrize("names", [["fraction"], ["mine", "mine"]])
def test_a_name_that_is_taken_is_refused_naming_the_package(installed, names):
    installed.extend(point(name, dict) for name in names)
    with pytest.raises(UsageError, match=rf"'their-package' registers .*'{names[0]}', which is taken"):
        plugins.load("parts", names[0], built_in=BUILT_IN)


def test_a_built_in_part_is_not_hidden_by_an_installed_one_of_its_name(installed):
    installed.append(point("fraction", dict))
    assert plugins.make("parts", "fraction", {"numerator": 1}, built_in=BUILT_IN) == 1


def test_a_broken_part_troubles_only_those_who_name_it(installed):
    installed += [broken("worse"), point("mine", dict)]
    assert plugins.make("parts", "mine", {"a": 1}, built_in=BUILT_IN) == {"a": 1}
    assert plugins.installed_names("parts", built_in=BUILT_IN) == ["worse", "mine"]
    with pytest.raises(UsageError, match=r"'their-package' registers parts name 'worse' .*: no 'ahead'"):
        plugins.find("parts", "worse", built_in=BUILT_IN)


def test_a_part_is_loaded_once_a_process(installed):
    loads = []
    installed.append(point("mine", None))
    installed[0].load = lambda: loads.append(1) or dict
    for _ in range(3):
        plugins.find("parts", "mine", built_in=BUILT_IN)
    assert loads == [1]
    installed.clear()  # uninstalled under a process that runs
    assert plugins.find("parts", "mine", built_in=BUILT_IN) is dict


def test_a_survey_tells_what_is_broken_beside_what_works(installed):
    installed += [broken("worse"), point("mine", dict)]
    worse, mine = plugins.survey("parts", built_in=BUILT_IN)
    assert (worse.name, worse.part) == ("worse", None)
    assert "ModuleNotFoundError: no 'ahead'" in worse.fault
    assert (mine.part, mine.fault) == (dict, None)


def test_a_part_that_cannot_be_made_is_its_packages_fault(installed):
    def needs_a_key(level=1):
        raise KeyError("TOKEN")

    installed.append(point("mine", needs_a_key))
    with pytest.raises(UsageError, match=r"parts 'mine' of the installed package 'their-package' .* KeyError: 'TOKEN'"):
        plugins.make("parts", "mine", {}, built_in=BUILT_IN)


def test_options_that_a_part_does_not_take_are_refused_with_the_nearest_that_it_does(installed):
    with pytest.raises(UsageError, match=r"parts 'fraction' .*'denominater'\. Did you mean 'denominator'\?"):
        plugins.make("parts", "fraction", {"denominater": 2}, built_in=BUILT_IN)


def test_options_that_a_part_cannot_do_without_are_named(installed):
    installed.append(point("mine", lambda model, level=1: model))
    with pytest.raises(UsageError, match=r"parts 'mine' was given the options \{\}; it needs model too"):
        plugins.make("parts", "mine", {}, built_in=BUILT_IN)
