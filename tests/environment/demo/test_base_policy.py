import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")
pytest.importorskip("transformers")

from dialrl.environment.demo.base_directory import refuse_base_policy
from dialrl.environment.demo.base_policy import (
    MAXIMUM_SHARE,
    MINIMUM_SLOT_ACCURACY,
    REPORT_FILE,
    build_demo_policy,
    measure,
    sample_dialogues,
)
from dialrl.environment.demo.base_tokenizer import END_OF_TURN, build_tokenizer
from dialrl.environment.demo.base_training import DialogueEncoder, TrainingSettings, new_model, train
from dialrl.environment.demo.policy_data import training_dialogue
from dialrl.environment.demo.replies import REPLIES, reply_texts
from dialrl.environment.demo.scenario import scenarios
from dialrl.errors import OutputExistsError, RunError
from dialrl.resources import resource

TOKENIZER = build_tokenizer()


def rendering(transcript: list, *, prompt: bool = False) -> list[int]:
    messages = [{"role": each.role, "content": each.content} for each in transcript]
    return TOKENIZER.apply_chat_template(messages, tokenize=True, add_generation_prompt=prompt, return_dict=False)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=80))
def test_any_text_survives_the_tokenizer(text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    assert TOKENIZER.decode(TOKENIZER(text, add_special_tokens=False)["input_ids"]) == text


def test_a_sentence_of_the_world_costs_one_token_a_word() -> None:
    assert TOKENIZER.tokenize("So the exam stays on your mind.") == [
        "So", "Ġthe", "Ġexam", "Ġstays", "Ġon", "Ġyour", "Ġmind", ".",
    ]  # fmt: skip
    for act in REPLIES:
        for text in reply_texts(act, "exam", "sad", "father"):
            assert len(TOKENIZER.tokenize(text)) <= 16, text


def test_the_rendering_only_ever_grows() -> None:
    transcript, _ = training_dialogue(0)
    whole = rendering(transcript)
    for turn in range(1, len(transcript), 2):
        context = rendering(transcript[:turn], prompt=True)
        assert whole[: len(context)] == context


def test_the_encoder_renders_as_the_chat_template_and_marks_the_policys_own() -> None:
    transcript, _ = training_dialogue(1)
    ids, own = DialogueEncoder(TOKENIZER)(transcript)
    assert ids == rendering(transcript)
    spoken = TOKENIZER.decode([token for token, mine in zip(ids, own, strict=True) if mine])
    assert spoken == "".join(line.content + END_OF_TURN for line in transcript if line.role == "assistant")


def test_a_few_steps_lower_the_loss_and_the_directory_loads(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    report = build_demo_policy(tmp_path, steps=3, check=False, given=scenarios("test")[:2])
    model, tokenizer = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert model.num_parameters() == report.parameters
    assert tokenizer.chat_template == TOKENIZER.chat_template
    assert tokenizer.eos_token == END_OF_TURN
    assert json.loads((tmp_path / REPORT_FILE).read_text())["steps"] == 3


def test_equal_seeds_teach_equal_weights() -> None:
    import torch

    def taught(seed: int) -> torch.Tensor:
        model = new_model(TOKENIZER, seed)
        train(model, TOKENIZER, TrainingSettings(steps=2, dialogues_a_step=2), seed=seed)
        return model.lm_head.weight.detach()

    assert torch.equal(taught(0), taught(0))
    assert not torch.equal(taught(0), taught(1))


def test_an_untaught_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no good start"):
        build_demo_policy(tmp_path, steps=1, given=scenarios("test")[:2])


def test_it_is_written_all_the_same_and_replaced_only_when_asked_for(tmp_path: Path) -> None:
    few = {"check": False, "given": scenarios("test")[:1]}
    output = tmp_path / "policy"
    build_demo_policy(output, steps=1, **few)  # type: ignore[arg-type]
    with pytest.raises(OutputExistsError, match="use --overwrite"):
        refuse_base_policy(output, overwrite=False)
    build_demo_policy(output, steps=2, overwrite=True, **few)  # type: ignore[arg-type]
    assert json.loads((output / REPORT_FILE).read_text())["steps"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_a_folder_of_something_else_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputExistsError, match=r"is no base policy \(it lacks report.json, config.json"):
        refuse_base_policy(tmp_path, overwrite=True)


def test_measuring_counts_the_dialogues_that_are_over(tmp_path: Path) -> None:
    seen = Seen()
    sample_dialogues(new_model(TOKENIZER, 0), TOKENIZER, scenarios("test")[:3], seed=0, progress=seen)
    assert (seen.total, seen.done) == (3, 3)


class Seen:
    """A Progress that adds up."""

    total, done = 0, 0

    def start(self, task: str, total: int | None = None, unit: str = "") -> None:
        self.total = total or 0

    def advance(self, amount: int = 1, **figures: float) -> None:
        self.done += amount

    def message(self, text: str) -> None: ...


def test_the_shipped_policy_is_a_good_start() -> None:
    folder = resource("demo-policy")
    report = json.loads((folder / REPORT_FILE).read_text())
    assert min(report["slot_accuracy"].values()) >= MINIMUM_SLOT_ACCURACY
    assert report["share"] < MAXIMUM_SHARE
    assert sum(file.stat().st_size for file in folder.iterdir()) < 3_000_000


def test_the_shipped_policy_speaks_to_the_user_it_hears() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = resource("demo-policy")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    users = sample_dialogues(model, tokenizer, scenarios("test")[:12], seed=0)
    replies = [line.content for user in users for line in user.transcript[1::2]]
    assert any(user.scenario.topic in user.transcript[place].content for user in users for place in (1, 3, 5))
    assert sum(len(reply) for reply in replies) > 0
    again = sample_dialogues(model, tokenizer, scenarios("test")[:12], seed=0)
    assert [user.transcript for user in again] == [user.transcript for user in users]


@pytest.mark.full
def test_the_shipped_report_is_what_one_measures() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = resource("demo-policy")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    report = json.loads((folder / REPORT_FILE).read_text())
    measured = measure(model, tokenizer, scenarios("test") * 4, seed=report["seed"])
    assert measured.share == pytest.approx(report["share"], abs=0.02)
    for kind, accuracy in measured.slot_accuracy.items():
        assert accuracy == pytest.approx(report["slot_accuracy"][kind], abs=0.02)
