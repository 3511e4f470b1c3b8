"""Support cards on the command line: validate, split, list, show."""

import json

from tests.support_cards import card

from dialrl.resources import resource


def write(path, content):
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    return path


def test_validate_counts_what_there_is_and_names_what_is_wrong(run, tmp_path):
    told = run("scenarios", "validate", str(resource("cards")), "--json").json
    assert told["counts"] == {"cards": 60}
    assert told["language"] == {"en": 40, "ko": 10, "zh": 10}
    bad = write(tmp_path / "bad.json", card() | {"deficit": {"C.1": 1}})
    wrong = run("scenarios", "validate", str(bad))
    assert wrong.code == 2
    assert f"'{bad}', card 'ada', field 'deficit'" in wrong.err.replace("\n", " ")


def test_cards_of_ones_own_belong_to_the_environment_support(run, tmp_path):
    wrong = run("scenarios", "list", "--cards", str(write(tmp_path / "my-card.json", card())))
    assert wrong.code == 2
    assert "Add --environment support." in wrong.err


def test_split_writes_cards_that_list_and_show_read(run, tmp_path):
    write(tmp_path / "lines.jsonl", "\n".join(json.dumps(card(f"c{n}", trigger=f"no. {n}")) for n in range(10)))
    out = tmp_path / "cards.yaml"
    told = run(
        "scenarios", "split", str(tmp_path / "lines.jsonl"), "-o", str(out), "--test-share", "0.3", "--json"
    ).json
    assert told["counts"] == {"train": 7, "test": 3}
    assert run("scenarios", "split", str(tmp_path / "lines.jsonl"), "-o", str(out)).code == 2
    listed = run("scenarios", "list", "--environment", "support", "--cards", str(out), "--split", "test")
    assert len(listed.out.splitlines()) == 3
    name = listed.out.split()[0]
    shown = run("scenarios", "show", "--environment", "support", "--cards", str(out), "--id", name, "--json").json
    assert shown["card"]["person"]["name"] == "Ada"
