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
        plugins.load("parts", built_in=BUILT_IN)


def test_options_that_a_part_does_not_take_are_refused(installed):
    with pytest.raises(UsageError, match=r"'fraction' .*\{'colour': 'red'\}.*colour"):
        plugins.make("parts", "fraction", {"colour": "red"}, built_in=BUILT_IN)
