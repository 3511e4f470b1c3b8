"""Variables of the chat template reach every rendering of a run: segments, lineage, resume, beliefs, endpoints."""

import shutil

import pytest
import torch
from tests.scripted import register
from tests.toys import CHATML, THINKING, fast_tokenizer, tiny_policy
from tests.trajectory_files import read

from dialrl.endpoint.settings import ModelSettings
from dialrl.engine import hf
from dialrl.engine.openai import with_template_options
from dialrl.errors import UsageError
from dialrl.evaluate.config import DialogueConfig
from dialrl.evaluate.dialogue import rollout_config
from dialrl.judge.belief_options import BeliefOptions
from dialrl.judge.belief_scorer import BeliefScorer
from dialrl.judge.information_gain import template_options
from dialrl.rollout.config import RolloutConfig
from dialrl.rollout.policy import open_policy
from dialrl.rollout.stage import roll_out
from dialrl.testing import ScriptedEnvironment
from dialrl.train.config import PipelineConfig
from dialrl.trajectory.reader import TrajectoryFile

THINKING_OFF = {"enable_thinking": False}
LINES = ["Hello there.", "I hear that.", "That hurts.", "Yes."]


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    torch.set_num_threads(1)
    return tiny_policy(tmp_path_factory.mktemp("policy"), chat_template=THINKING)


def rolled(policy, output, monkeypatch, *, resume=False, **options):
    register(monkeypatch, environment=ScriptedEnvironment(LINES))
    base = {"groups": 1, "samples": 2, "max_turns": 3, "max_reply_tokens": 5}
    config = RolloutConfig(environment="scripted", **{**base, **options})
    opened = open_policy(policy, template_options=config.template_options)
    return roll_out(opened, output, config, resume=resume)


def segments(output):
    return [[row["segment"] for row in read(output)[first : first + 3]] for first in (0, 3)]


def test_thinking_off_appends_to_one_segment_and_starts_one_a_turn_in_template_mode(policy, tmp_path, monkeypatch):
    for history in ("append", "template"):
        rolled(policy, tmp_path / history, monkeypatch, history=history, template_options=THINKING_OFF)
    assert segments(tmp_path / "append") == [[0, 0, 0]] * 2
    assert segments(tmp_path / "template") == [[0, 1, 2]] * 2


def test_every_prompt_holds_the_empty_block_where_the_template_writes_it(policy, tmp_path, monkeypatch):
    rolled(policy, tmp_path / "off", monkeypatch, template_options=THINKING_OFF)
    rolled(policy, tmp_path / "on", monkeypatch)
    closing = fast_tokenizer(THINKING).convert_tokens_to_ids("</think>")
    assert all(row["prompt_ids"].count(closing) == 1 for row in read(tmp_path / "off"))
    assert all(closing not in row["prompt_ids"] for row in read(tmp_path / "on"))


def test_the_lineage_holds_options_template_and_what_the_probe_found(policy, tmp_path, monkeypatch):
    summary = rolled(policy, tmp_path / "r", monkeypatch, template_options=THINKING_OFF)
    record = TrajectoryFile.open(tmp_path / "r").lineage.record("rollout")
    assert record.options["template_options"] == THINKING_OFF
    assert record.details["template_probe"]["thinking_off"] is True
    assert record.details["chat_template"].startswith("sha256:")
    assert summary.figures["history"] == "append"


def test_resuming_with_other_options_or_another_template_is_refused(policy, tmp_path, monkeypatch):
    own = tmp_path / "own.jinja"
    own.write_text(CHATML)
    options = {"chat_template": str(own)}
    rolled(policy, tmp_path / "r", monkeypatch, template_options=options)
    assert rolled(policy, tmp_path / "r", monkeypatch, template_options=options, resume=True).figures == {
        "already_complete": True
    }
    with pytest.raises(UsageError, match="template_options"):
        rolled(policy, tmp_path / "r", monkeypatch, resume=True)
    own.write_text(CHATML + "{# changed #}")
    with pytest.raises(UsageError, match="chat_template: 'sha256"):
        rolled(policy, tmp_path / "r", monkeypatch, template_options=options, resume=True)


def test_a_belief_is_asked_after_the_headers_of_the_rollout(policy, tmp_path, monkeypatch):
    rolled(policy, tmp_path / "r", monkeypatch, template_options=THINKING_OFF)
    found = template_options(TrajectoryFile.open(tmp_path / "r"))
    scorer = BeliefScorer(policy, BeliefOptions(), found)
    assert scorer.template.decode(scorer.header_ids).endswith("</think>\n\n")


def test_an_evaluation_renders_as_its_pipeline_and_as_it_is_told():
    pipeline = PipelineConfig.model_validate({"rollout": {"template_options": THINKING_OFF}})
    assert pipeline.evaluate.template_options == THINKING_OFF
    config = DialogueConfig(environment="demo", groups=1, template_options=THINKING_OFF)
    assert rollout_config(config).template_options == THINKING_OFF


def test_an_endpoint_that_renders_itself_is_sent_the_options():
    settings = ModelSettings(model="m", extra={"chat_template_kwargs": {"tone": "warm"}, "n": 1})
    extra = with_template_options(settings, THINKING_OFF).extra
    assert extra == {"n": 1, "chat_template_kwargs": {"enable_thinking": False, "tone": "warm"}}
    assert with_template_options(settings, {}) is settings
    with pytest.raises(UsageError, match="renders chats by its own template"):
        with_template_options(settings, {"chat_template": "plain"})


def test_a_policy_without_a_template_is_refused_before_its_weights_load(policy, tmp_path, monkeypatch):
    place = shutil.copytree(policy / "model", tmp_path / "base")
    (place / "chat_template.jinja").unlink()
    monkeypatch.setattr(hf, "load_model", lambda *_: pytest.fail("loaded"))
    with pytest.raises(UsageError, match=r"template_options\.chat_template=plain"):
        open_policy(place)
