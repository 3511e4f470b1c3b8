"""``dialrl report`` and ``dialrl inspect --browse`` as commands: outputs, summaries, what is refused."""

import sys

import pytest

from trajectory_files import judged, write


@pytest.fixture
def judged_file(tmp_path):
    return write(tmp_path / "judge.parquet", judged({"g": [(-7.0,), (-8.0,)]}), "rollout", "judge")


def test_a_file_becomes_a_page(run, judged_file, tmp_path):
    page = tmp_path / "page.html"
    said = run("report", judged_file, "-o", page, "--title", "Mine", "--json").json
    assert (said["counts"]["files"], said["counts"]["dialogues"], said["output"]) == (1, 2, str(page))
    assert said["counts"]["bytes"] == page.stat().st_size
    assert "<title>Mine - dialrl</title>" in page.read_text(encoding="utf-8")


def test_a_limit_that_leaves_dialogues_out_is_told(run, judged_file, tmp_path):
    more = write(tmp_path / "more.parquet", judged({"a": [(-7.0,)], "b": [(-7.0,)]}), "rollout", "judge")
    (warning,) = run("report", more, "-o", tmp_path / "page.html", "--dialogues", 1, "--json").json["warnings"]
    assert warning.startswith("1 of 2 dialogues are counted in the charts but cannot be opened")


def test_wrong_inputs_end_with_one_sentence(run, judged_file, tmp_path):
    (tmp_path / "page.html").write_text("mine")
    for arguments, sentence in (
        ((tmp_path / "nothing", "-o", tmp_path / "a.html"), "does not exist"),
        ((judged_file, judged_file, "-o", tmp_path / "a.html"), "given twice"),
        ((judged_file, "-o", tmp_path / "page.html"), "--overwrite"),
        ((tmp_path / "page.html", "-o", tmp_path / "a.html"), "not a Parquet file"),
    ):
        ended = run("report", *arguments)
        assert ended.code == 2
        assert sentence in ended.err
        assert "Traceback" not in ended.err
    assert not (tmp_path / "a.html").exists()


def test_browsing_without_its_library_names_the_extra(run, judged_file, monkeypatch):
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setitem(sys.modules, "textual.app", None)
    monkeypatch.delitem(sys.modules, "dialrl.cli.browse", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    ended = run("inspect", judged_file, "--browse")
    assert ended.code == 2
    assert "dialrl[tui]" in ended.err
