"""EQ-Bench v2: the formula, parsing, both modes, both aggregations, refusals, and the published scores."""

import json
import math

import pyarrow.parquet as pq
import pytest
from tests.benchmark_files import (
    EMOTIONS,
    eqbench_answers,
    eqbench_question,
    eqbench_questions,
    first_pass,
    intensities,
    write_json,
)
from tests.reference_data import reference

from dialrl.errors import InputError, OutputExistsError
from dialrl.evaluate.benchmark_config import EqBenchConfig
from dialrl.evaluate.eqbench import evaluate_eqbench
from dialrl.evaluate.eqbench_data import load_questions, parse_answer
from dialrl.evaluate.eqbench_score import anchors, difference, is_failed, item_score, lm_eval, official

QUICK = {"resamples": 50}
# References 0, 6, 0, 7 answered 0, 6, 0, 7 cost nothing; answered 0, 6, 0, 2 a distance of 5.
PERFECT, OFF_BY_FIVE = ("0", 6, 0, "7"), (0, 6, 0, 2)


def evaluated(tmp_path, *iterations, references=(PERFECT,) * 2, output=None, **options):
    questions = eqbench_questions(tmp_path, *references)
    answers = eqbench_answers(tmp_path, *iterations)
    return evaluate_eqbench(answers, questions, EqBenchConfig(**{**QUICK, **options}), output=output)


# the formula --------------------------------------------------------------------------------------------------------


def test_a_distance_of_four_costs_half_the_curve_and_a_large_one_itself():
    assert [difference(d) for d in (0.0, 4.0, 7.0)] == pytest.approx([0.0, 3.25, 7.0])
    assert difference(1.0) == pytest.approx(6.5 / (1 + math.exp(3.6)))


def test_the_boundary_decides_what_a_distance_of_five_costs():
    assert difference(5.0) == 5.0
    assert difference(5.0, five_is_curved=True) == pytest.approx(6.5 / (1 + math.exp(-1.2)))


def test_an_item_by_hand():
    answer, right = intensities(0.0, 5.0, 4.0, 0.0), intensities(0.0, 6.0, 0.0, 7.0)
    assert item_score(answer, right) == pytest.approx(10 - 0.7477 * (6.5 / (1 + math.exp(3.6)) + 3.25 + 7))


def test_a_bad_answer_scores_below_zero_and_is_not_clipped():
    assert item_score(intensities(10, 10, 10, 10), intensities(0, 0, 0, 0)) == pytest.approx(10 - 0.7477 * 40)


def test_anchors_by_hand():
    # One reference of 3 and three of 0: always 3 costs 0 + 3 f(3); all zeros f(3).
    curve = 6.5 / (1 + math.exp(1.2))
    found = anchors([intensities(3.0, 0.0, 0.0, 0.0)])
    assert found["all_zeros"] == pytest.approx(100 - 7.477 * curve)
    assert found["always_3"] == pytest.approx(100 - 7.477 * 3 * curve)


# aggregation --------------------------------------------------------------------------------------------------------


def test_revised_counts_where_it_is_as_good_and_as_complete():
    assert official([4.0, 6.0], [5.0, 5.0]).block == "revised"
    assert official([4.0, 6.0], [5.0, 5.0]).score == 50.0
    assert official([4.0, 6.0], [4.0, 5.0]).score == 50.0
    assert official([4.0, 6.0, None], [8.0, None, None]).score == 50.0
    assert official([None, None], [8.0, None]).score == 80.0


def test_revised_may_lack_one_parsed_item_in_twenty():
    assert official([5.0] * 20, [6.0] * 19 + [None]).block == "revised"
    assert official([5.0] * 20, [6.0] * 18 + [None] * 2).block == "first_pass"


def test_nothing_parsed_is_no_score_not_zero():
    assert official([None], [None]).score is None


def test_in_lm_eval_an_unparsed_item_scores_zero_and_counts():
    assert lm_eval([4.0, 6.0, None]).score == pytest.approx(100 / 3)


def test_143_of_171_pass_and_142_fail():
    assert not is_failed(143, 171)
    assert is_failed(142, 171)


# parsing ------------------------------------------------------------------------------------------------------------


def test_without_revision_the_whole_text_is_one_block_and_the_last_duplicate_wins():
    assert parse_answer("Calm: 3\nAngry:\n 8 Calm: 4", revision=False) == ({"Calm": 4.0, "Angry": 8.0}, {})


def test_a_colon_needs_a_space_after_it():
    assert parse_answer("Calm:3 Sad: 4", revision=False) == ({"Sad": 4.0}, {})


def test_with_revision_the_blocks_stand_between_exact_headings():
    text = "Calm: 9\nFirst pass scores:\nCalm: 1\nCritique: Sad: no\nRevised scores:\nCalm: 2"
    assert parse_answer(text, revision=True) == ({"Calm": 1.0}, {"Calm": 2.0})
    assert parse_answer(text.replace("Revised scores", "revised scores"), revision=True) == ({}, {})
    assert parse_answer(text.replace("First pass", "First-pass"), revision=True) == ({}, {"Calm": 2.0})


def test_the_prompt_without_revision_loses_request_headings_and_critique(tmp_path):
    question = load_questions(eqbench_questions(tmp_path, PERFECT))["1"]
    assert question.text(revision=True) == eqbench_question(*PERFECT)["prompt"]
    assert question.text(revision=False) == (
        "\nA gardener finds the gate open.\n\nGive each a score.\n\nUse this format:\n\nCalm: <score>\n\n"
        "Zero is a valid score.\n\nYour answer:\n"
    )


# the command's function ---------------------------------------------------------------------------------------------


def test_the_summary_has_score_parse_rate_and_what_was_left_out(tmp_path):
    answers = {"1": first_pass(*PERFECT), "2": first_pass(0, 0, 0, 0)}
    summary = evaluated(tmp_path, answers, references=(PERFECT,) * 3)
    shown = summary.to_json()
    assert list(shown)[2:5] == ["score", "failed", "parse_rate"]
    assert shown["score"] == pytest.approx(100.0)
    assert shown["parse_rate"] == pytest.approx(1 / 3)
    assert shown["failed"] is True
    counted = ("questions", "parsed", "unparsed", "unanswered")
    assert [shown["counts"][name] for name in counted] == [3, 1, 2, 1]
    assert shown["settings"]["boundary"] == "<5"
    assert any("1 of 3 items were parsed" in warning for warning in shown["warnings"])
    json.dumps(shown, allow_nan=False)


def test_boundaries_differ_and_are_named(tmp_path):
    curved = 10 * (10 - 0.7477 * 6.5 / (1 + math.exp(-1.2)))
    answers = {"1": first_pass(*OFF_BY_FIVE), "2": first_pass(*OFF_BY_FIVE)}
    assert evaluated(tmp_path, answers).figures["score"] == pytest.approx(100 - 7.477 * 5)
    for boundary in ("<=5", "<= 5"):
        figures = evaluated(tmp_path, answers, boundary=boundary).figures
        assert figures["score"] == pytest.approx(curved)
        assert figures["settings"]["boundary"] == "<=5"


def test_lm_eval_takes_its_own_boundary_the_first_block_and_counts_every_item(tmp_path):
    both = {"first_pass": intensities(*OFF_BY_FIVE), "revised": intensities(*PERFECT)}
    figures = evaluated(tmp_path, {"1": both}, aggregation="lm-eval").figures
    assert figures["score"] == pytest.approx(5 * (10 - 0.7477 * 6.5 / (1 + math.exp(-1.2))))
    assert figures["settings"]["boundary"] == "<=5"


def test_the_better_block_counts_and_no_revision_takes_the_first(tmp_path):
    both = {key: {"first_pass": intensities(*OFF_BY_FIVE), "revised": intensities(*PERFECT)} for key in "12"}
    assert evaluated(tmp_path, both).figures["score"] == pytest.approx(100.0)
    assert evaluated(tmp_path, both, revision=False).figures["score"] == pytest.approx(100 - 7.477 * 5)


def test_iterations_are_averaged(tmp_path):
    good, poor = ({key: first_pass(*scores) for key in "12"} for scores in (PERFECT, OFF_BY_FIVE))
    summary = evaluated(tmp_path, good, poor)
    assert summary.figures["score"] == pytest.approx(100 - 7.477 * 2.5)
    assert summary.counts["iterations"] == 2


def test_text_is_parsed_again(tmp_path):
    text = "\n".join(f"{name}: {score}" for name, score in zip(EMOTIONS, PERFECT, strict=True))
    figures = evaluated(tmp_path, {"1": text, "2": text + "\nGlad: 1"}, source="text").figures
    assert (figures["score"], figures["parse_rate"]) == (pytest.approx(100.0), 0.5)


def test_whether_texts_hold_a_revision_is_seen_from_their_headings(tmp_path):
    block = "\n".join(f"{name}: {score}" for name, score in zip(EMOTIONS, PERFECT, strict=True))
    text = f"First pass scores:\n{block}\nCritique: Calm: 9\nRevised scores:\n{block}"
    summary = evaluated(tmp_path, {"1": text, "2": text}, source="text")
    assert summary.figures["settings"]["revision"] is True
    assert summary.figures["score"] == pytest.approx(100.0)


def test_a_limit_scores_the_first_questions_and_says_so(tmp_path):
    answers = {"1": first_pass(*PERFECT), "2": first_pass(*OFF_BY_FIVE)}
    summary = evaluated(tmp_path, answers, limit=1)
    assert (summary.figures["score"], summary.counts["questions"]) == (pytest.approx(100.0), 1)
    assert "Only 1 questions were scored: this is no EQ-Bench score." in summary.warnings


def test_the_results_file_has_a_row_an_item_and_is_not_replaced_unasked(tmp_path):
    output = tmp_path / "items.parquet"
    evaluated(tmp_path, {"1": first_pass(*PERFECT)}, output=output)
    rows = pq.read_table(output).to_pylist()
    assert [(row["item"], row["score"], row["status"]) for row in rows] == [
        ("1", pytest.approx(100.0), "scored"),
        ("2", None, "unparsed"),
    ]
    with pytest.raises(OutputExistsError, match="exists"):
        evaluated(tmp_path, {"1": first_pass(*PERFECT)}, output=output)


# refusals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (
            {"1": first_pass(0, "many", 0, 7)},
            r"line \d+, field 'raw_results\.1\.respondent_answers\.1\.first_pass\.Pro",
        ),
        ({"9": first_pass(*PERFECT)}, "answers question '9', which is not among the 2 asked"),
        ({"1": {"first": intensities(*PERFECT)}}, r"answers\.1\.first': expected the blocks first_pass and revised"),
        ({"1": ["Calm", 3]}, r"answers\.1': got a list; expected an object"),
    ],
)
def test_malformed_answers_are_refused_with_file_line_and_field(tmp_path, answers, message):
    with pytest.raises(InputError, match=message):
        evaluated(tmp_path, answers)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"emotion2": "Calm"}, "expected 4 different emotions"),
        ({"emotion2_score": "six"}, r"line \d+, field '1\.reference_answer_fullscale\.emotion2_score': got the text"),
        ({"emotion2_score": None}, "is missing; expected a number"),
    ],
)
def test_malformed_questions_are_refused(tmp_path, change, message):
    question = eqbench_question(*PERFECT)
    question["reference_answer_fullscale"].update(change)
    with pytest.raises(InputError, match=message):
        load_questions(write_json(tmp_path / "questions.json", {"1": question}))


def test_a_question_that_stands_twice_is_refused_with_its_line(tmp_path):
    path = tmp_path / "questions.json"
    one = json.dumps(eqbench_question(*PERFECT))
    path.write_text(f'{{"1": {one},\n"1": {one}}}', encoding="utf-8")
    with pytest.raises(InputError, match="line 2, field '1' stands twice"):
        load_questions(path)


# the published files ------------------------------------------------------------------------------------------------

PUBLISHED = {
    "gpt-4-0613": (84.79, 84.79),
    "01-ai__Yi-6B-Chat": (61.79, 61.80),
    "microsoft__phi-2": (27.60, 27.62),
    "TheBloke__koala-7B-HF": (21.54, 21.56),
    "allenai__tulu-2-dpo-70b": (76.63, 76.63),
}


def published(model, **options):
    data = reference("eqbench")
    answers, questions = data / f"results/{model}_eqbench_v2_results.json", data / "eq_bench_v2_questions_171.json"
    return evaluate_eqbench(answers, questions, EqBenchConfig(**{**QUICK, **options})), json.loads(answers.read_text())


@pytest.mark.parametrize("model", PUBLISHED)
def test_the_official_score_of_every_published_file_is_reproduced(model):
    summary, file = published(model)
    assert round(summary.figures["score"], 2) == file["benchmark_score"] == PUBLISHED[model][0]
    assert summary.counts["parsed"] == file["n_questions_parseable"]
    assert round(published(model, boundary="<=5")[0].figures["score"], 2) == PUBLISHED[model][1]


def test_the_stored_text_of_one_model_parses_worse_than_its_stored_answers():
    summary, _ = published("allenai__tulu-2-dpo-70b", source="text")
    assert round(summary.figures["score"], 2) == 76.07
    assert (summary.counts["parsed"], summary.figures["failed"]) == (127, True)


@pytest.mark.parametrize("model", [name for name in PUBLISHED if "tulu" not in name])
def test_the_stored_text_of_the_others_gives_the_same_score(model):
    assert round(published(model, source="text")[0].figures["score"], 2) == PUBLISHED[model][0]


def test_published_anchors():
    questions = load_questions(reference("eqbench") / "eq_bench_v2_questions_171.json")
    found = anchors((question.reference for question in questions.values()), five_is_curved=True)
    assert len(questions) == 171
    assert (round(found["all_zeros"], 2), round(found["always_3"], 2)) == (2.36, 38.89)
    assert found["uniform_random"] == pytest.approx(1.43, abs=0.01)


def test_no_published_prompt_keeps_a_trace_of_the_revision():
    questions = load_questions(reference("eqbench") / "eq_bench_v2_questions_171.json")
    for question in questions.values():
        text = question.text(revision=False)
        traces = ("Then critique", "Critique:", "First pass scores", "evised scores", "[End of answer]")
        assert not any(trace in text for trace in traces)
        assert text.endswith("Your answer:\n")
