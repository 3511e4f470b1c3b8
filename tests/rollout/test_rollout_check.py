"""What cannot work in a rollout is found without torch, and before a model loads."""

import subprocess
import sys

import pytest

from dialrl.errors import DialrlError, MissingExtraError, OutputExistsError
from dialrl.rollout import check
from dialrl.rollout.config import RolloutConfig
from dialrl.trajectory.parts import Parts, refuse_unfinished

REFUSED_LIGHTLY = """
import sys
from dialrl.errors import DialrlError
from dialrl.rollout.check import check_engine_here, check_rollout
from dialrl.rollout.config import RolloutConfig
check_rollout(RolloutConfig())
check_engine_here(RolloutConfig())
try:
    check_rollout(RolloutConfig(split="dev"))
except DialrlError as error:
    print(error, sorted({"torch", "transformers"} & set(sys.modules)))
"""


def test_a_split_without_scenarios_is_refused_before_torch_is_imported():
    ended = subprocess.run([sys.executable, "-c", REFUSED_LIGHTLY], capture_output=True, text=True, check=True)
    assert "no split 'dev'" in ended.stdout
    assert ended.stdout.strip().endswith("[]")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"engine": "hff"}, "no engine 'hff'"),
        ({"engine": "vllm", "engine_options": {"modee": "server"}}, "unknown key 'modee'"),
        ({"grading": "live", "judge": "demoo"}, "'demoo' is none of the judges"),
        ({"environment_options": {"colour": 1}}, "it does not take 'colour'"),
    ],
)
def test_names_and_options_are_looked_at(options, sentence):
    with pytest.raises(DialrlError, match=sentence):
        check.check_rollout(RolloutConfig(**options))


@pytest.mark.parametrize("mode", ["server", "in-process"])
def test_an_engine_that_is_not_installed_is_told(monkeypatch, mode):
    monkeypatch.delenv("DIALRL_VLLM_PYTHON", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(check, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="vllm"):
        check.check_engine_here(RolloutConfig(engine="vllm", engine_options={"mode": mode}))


def test_an_unfinished_output_is_refused_unless_it_is_replaced(tmp_path):
    Parts(tmp_path / "a.parquet", {"seed": 1}, overwrite=False, resume=False)
    with pytest.raises(OutputExistsError, match="An unfinished"):
        refuse_unfinished(tmp_path / "a.parquet", overwrite=False)
    refuse_unfinished(tmp_path / "a.parquet", overwrite=True)
    refuse_unfinished(tmp_path / "b.parquet", overwrite=False)
