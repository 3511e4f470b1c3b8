"""What cannot work in a pipeline is said before any work is done."""

import fcntl

import pytest
import yaml

from dialrl.errors import DialrlError, UsageError
from dialrl.resources import resource
from dialrl.train.check import check_pipeline, warnings_of
from dialrl.train.config import PipelineConfig
from dialrl.train.loop import train
from dialrl.train.run_directory import RunDirectory


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"policy": "no/where/at/all"}, "section 'policy'"),
        ({"advantage": {"preset": "micca"}}, "Did you mean 'mica'"),
        ({"returns": {"gamma": 0.9}}, "published with gamma 0.85; returns.gamma is 0.9"),
        ({"returns": {"reward": ["outcom"]}}, "section 'returns'"),
        (
            {"judge": {"judge": "none"}},
            "incremental-distance reads deficit, position, which the judge 'none' does not give",
        ),
        ({"judge": {"judge": "information-gain"}}, "reads deficit, position, which the judge 'information-gain'"),
        ({"returns": {"reward": ["information-gain"]}}, "reads belief_after, belief_before, which the judge 'demo'"),
        ({"rollout": {"split": "validation"}}, "section 'rollout'"),
        ({"rollout": {"engine": "hff"}}, "section 'rollout'"),
        ({"judge": {"judge": "demoo"}}, "section 'judge': 'demoo' is none of the judges. Did you mean 'demo'"),
        ({"judge": {"judge_options": {"noize": 1}}}, "it does not take 'noize'. Did you mean 'noise'"),
        (
            {"judge": {"judge": "rubric", "judge_options": {"model": "m", "longest_note_characterz": 20}}},
            "section 'judge': .*Did you mean 'longest_note_characters'",
        ),
        (
            {"judge": {"judge": "rubric", "judge_options": {"model": "m", "samples": -3}}},
            "section 'judge': .*samples: .*greater than or equal to 1",
        ),
        (
            {"judge": {"judge": "information-gain", "judge_options": {"scorerr": "frozen"}}},
            "section 'judge': .*scorerr",
        ),
        ({"rollout": {"grading": "live", "judge": "demoo"}}, "section 'rollout': 'demoo' is none of the judges"),
        ({"evaluate": {"judge": "demoo"}}, "section 'evaluate': 'demoo' is none of the judges"),
        (
            {"rollout": {"top_p": 0.9}},
            "section 'rollout': top_p is 0.9; only replies drawn with top_p 1 can be trained",
        ),
        ({"rollout": {"top_k": 5}}, "section 'rollout': top_k is 5"),
        ({"rollout": {"min_p": 0.1}}, "section 'rollout': min_p is 0.1"),
        ({"rollout": {"temperature": 0}}, "section 'rollout': temperature is 0"),
        (
            {"train": {"iterations": 2}, "update": {"schedule": "cosine", "warmup_steps": 2}},
            "warmup_steps is 2; expected less than the total steps, 2",
        ),
    ],
)
def test_it_names_the_section_and_what_is_wrong(sections, sentence, tmp_path):
    pipeline = PipelineConfig.model_validate(sections)
    with pytest.raises(DialrlError, match=sentence.replace("(", r"\(")):
        check_pipeline(pipeline)
    with pytest.raises(DialrlError):
        train(pipeline, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_directory_that_holds_no_policy_is_refused(tmp_path):
    with pytest.raises(DialrlError, match=r"section 'policy': .* is no policy"):
        check_pipeline(PipelineConfig.model_validate({"policy": str(tmp_path)}))


def test_a_judge_that_no_evaluation_asks_is_not_looked_at():
    sections = {"train": {"evaluate_every": 0}, "evaluate": {"judge": "demoo"}}
    check_pipeline(PipelineConfig.model_validate(sections))


def test_groups_of_one_are_warned_of_with_what_the_preset_makes_of_them():
    sections = {"rollout": {"samples": 1}, "advantage": {"preset": "grpo"}}
    (line,) = warnings_of(PipelineConfig.model_validate(sections))
    assert "0 on every turn: no learning signal" in line
    assert warnings_of(PipelineConfig()) == ()


def test_another_gamma_is_fine_when_the_terms_are_told_which_to_use():
    check_pipeline(PipelineConfig.model_validate({"returns": {"gamma": 0.9}, "advantage": {"gamma": 0.9}}))


def test_a_run_directory_in_use_is_refused(tmp_path):
    run = RunDirectory(tmp_path / "run")
    with (tmp_path / ".run.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="in use by another process"), run.in_use():
            pass
    with run.in_use():
        pass


def test_the_evaluation_is_looked_at_in_its_own_environment_not_in_that_of_training(tmp_path):
    card = tmp_path / "mine.yaml"
    shipped = yaml.safe_load(resource("cards/ko.yaml").read_text(encoding="utf-8"))["cards"]
    card.write_text(yaml.safe_dump({**next(one for one in shipped if one["split"] == "train"), "id": "mine"}))
    roles = {"environment": "support", "environment_options": {"cards": str(card)}}
    with pytest.raises(UsageError, match="section 'evaluate': environment 'support' has no scenarios in split 'test'"):
        check_pipeline(PipelineConfig.model_validate({"rollout": roles}))
    own = {"environment_options": {}}
    check_pipeline(PipelineConfig.model_validate({"rollout": roles, "evaluate": own}))
