"""What cannot work in a pipeline is said before any work is done."""

import fcntl

import pytest
import yaml

from dialrl.errors import DialrlError, UsageError
from dialrl.resources import resource
from dialrl.train.check import check_pipeline
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
