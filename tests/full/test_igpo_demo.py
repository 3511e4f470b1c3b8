"""The promises of ``dialrl train pipelines/igpo-demo.yaml``, run as it ships. Minutes; only in make check-full."""

import pytest

from dialrl.evaluate.benchmark_config import QaConfig
from dialrl.evaluate.qa import evaluate_qa
from dialrl.resources import resource
from dialrl.train.config import read_pipeline
from dialrl.train.loop import train

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]


def short_hops(dialogues):
    """Mean word-set F1 on held-out questions of one and two hops, as a share of an oracle's, which is 1."""
    questions = resource("search-world/questions.jsonl")
    sources = evaluate_qa(dialogues, questions, QaConfig(split="test", resamples=10)).figures["by_source"]
    cells = [sources["one-hop"], sources["two-hop"]]
    return sum(cell["word_set_f1"] * cell["tries"] for cell in cells) / sum(cell["tries"] for cell in cells) / 100


def test_a_policy_that_answered_too_early_learns_to_search(tmp_path):
    pipeline = read_pipeline(resource("igpo-demo.yaml", kind="pipelines"))
    train(pipeline, tmp_path / "run")
    last = f"{pipeline.train.iterations - 1:04d}"
    assert short_hops(tmp_path / "run" / "base" / "evaluation" / "rollout.parquet") <= 0.3
    assert short_hops(tmp_path / "run" / last / "evaluation" / "rollout.parquet") >= 0.7
