"""Plugins as the doctor sees them: a broken one is a warning with its package's name, and the doctor goes on."""

from types import SimpleNamespace

from dialrl import plugins
from dialrl.doctor.parts import installed_parts
from dialrl.doctor.stage import examine, subject_of


def register(monkeypatch, **loads):
    points = [
        SimpleNamespace(name=name, value=f"{name}:X", dist=SimpleNamespace(name=f"{name}-package"), load=load)
        for name, load in loads.items()
    ]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points if group == "dialrl.judges" else [])


def breaks():
    raise ModuleNotFoundError("No module named 'ahead'")


def test_there_is_no_line_where_nothing_is_installed(monkeypatch):
    register(monkeypatch)
    assert installed_parts() == []


def test_a_broken_part_is_a_warning_beside_those_that_work(monkeypatch):
    register(monkeypatch, bad=breaks, good=lambda: dict)
    bad, good = installed_parts()
    assert (bad.name, bad.status, good.status) == ("judge bad", "warning", "ok")
    assert "No module named 'ahead'" in bad.found
    assert "bad-package" in (bad.advice or "")


def test_a_broken_part_ends_no_diagnosis(monkeypatch):
    register(monkeypatch, bad=breaks)
    diagnosis = examine(subject_of())
    assert "judge bad" in [check.name for check in diagnosis.checks]
    assert not diagnosis.failed
