"""``dialrl doctor``: exit codes, JSON, and what it looks like at 80 columns."""

import pytest
import torch
from tests.toys import THINKING, tiny_policy

from dialrl.doctor import software


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    torch.set_num_threads(1)
    return tiny_policy(tmp_path_factory.mktemp("policy"), chat_template=THINKING)


def test_it_exits_with_0_where_nothing_was_named_and_prints_every_area(run):
    ended = run("doctor", "--quiet")
    assert ended.code == 0
    assert [
        area for area in ("Software", "Extras", "Machine", "Endpoints", "Policy") if f"{area}\n" not in ended.out
    ] == []
    assert "Nothing that is needed fails." in ended.out


def test_json_is_one_object_with_every_check(run, policy):
    found = run("doctor", "--policy", policy, "--no-weights", "--json", "--quiet").json
    assert found["ready"] is True
    assert {"area", "name", "status", "found", "advice", "details"} == set(found["checks"][0])


def test_options_of_the_template_can_be_tried_without_a_pipeline(run, policy):
    found = run(
        "doctor", "--policy", policy, "--no-weights", "--template-option", "enable_thinking=false", "--json"
    ).json
    template = next(check for check in found["checks"] if check["name"] == "template")
    assert template["details"]["thinking_off"] is True
    assert run("doctor", "--template-option", "enable_thinking").code == 2


def test_something_needed_that_fails_exits_with_1_and_is_named(run, tmp_path):
    ended = run("doctor", "--endpoint", "http://127.0.0.1:9/v1", "--quiet")
    assert ended.code == 1
    assert "Not ready (endpoints: given)" in ended.out


def test_the_light_core_alone_is_no_failure_until_a_policy_is_named(run, monkeypatch):
    monkeypatch.setattr(
        software,
        "installed",
        lambda package: (
            "1.0" if package in ("pyarrow", "numpy", "pydantic", "typer", "rich", "jinja2", "PyYAML") else None
        ),
    )
    assert run("doctor", "--quiet").code == 0
    ended = run("doctor", "--policy", "demo-policy", "--no-weights", "--quiet")
    assert ended.code == 1
    assert "pip install 'dialrl[train]'" in ended.out


def test_a_wrong_address_or_pipeline_is_a_wrong_use(run, tmp_path):
    assert run("doctor", "--config", tmp_path / "no.yaml").code == 2
    assert run("doctor", "--endpoint", "localhost:8000").code == 2


def test_it_fits_80_columns_and_shows_the_dialogue_with_its_line_breaks(run, policy, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ended = run("doctor", "--policy", policy, "--no-weights", "--quiet")
    assert max(map(len, ended.out.splitlines())) <= 80
    assert "<|im_start|>user\u21b5" in ended.out
