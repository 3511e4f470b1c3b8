"""dialrl export: the format is asked for by name, the summary counts, an unknown format is wrong usage."""

from tests.trajectory_files import judged, read, write


def test_export_and_import_again_by_command(run, tmp_path):
    source = write(tmp_path / "t.parquet", judged({"g": [[-5.0, -3.0], [-4.0]]}))
    lines, back = tmp_path / "t.jsonl", tmp_path / "back.parquet"
    assert run("export", source, "--to", "jsonl", "-o", lines, "--json").json["counts"]["examples"] == 3
    assert run("import", "turns", lines, "-o", back, "--json").json["counts"]["dialogues"] == 2
    columns = read(source)[0].keys()
    assert [{name: turn[name] for name in columns} for turn in read(back)] == read(source)


def test_an_unknown_or_missing_format_is_wrong_usage(run, tmp_path):
    source = write(tmp_path / "t.parquet", judged({"g": [[-5.0]]}))
    unknown = run("export", source, "--to", "csv", "-o", tmp_path / "t.csv")
    assert (unknown.code, "csv" in unknown.err) == (2, True)
    missing = run("export", source, "-o", tmp_path / "t.csv")
    assert (missing.code, "--to" in missing.err) == (2, True)
