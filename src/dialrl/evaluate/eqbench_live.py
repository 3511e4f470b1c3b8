"""``dialrl evaluate eqbench --engine``: asks a model EQ-Bench's questions, with the benchmark's own retries.

The prompt is the question file's. A question whose answer cannot be read is asked again, each time warmer: 0.01, 0.16,
0.31. As lm-evaluation-harness: greedy, one try, no revision. Not here: scores (``eqbench``).
"""

from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from dialrl.evaluate.answer_store import AnswerStore, check_failures
from dialrl.evaluate.benchmark_config import EqBenchConfig
from dialrl.evaluate.eqbench import score_answers
from dialrl.evaluate.eqbench_answers import Answers, Raw, raw_by_iteration
from dialrl.evaluate.eqbench_data import Question, load_questions, parse_answer
from dialrl.evaluate.eqbench_score import is_valid
from dialrl.evaluate.reply import Asked, Reply
from dialrl.evaluate.respondent import Respondent, with_asking
from dialrl.progress import SILENT, Progress
from dialrl.rollout.stage import Policy
from dialrl.scenario.message import Message
from dialrl.seeds import seed_for
from dialrl.summary import StageSummary

FIRST_TEMPERATURE, WARMER = 0.01, 0.15


def run_eqbench(
    policy: Policy,
    questions: Path,
    config: EqBenchConfig,
    *,
    output: Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Ask ``policy`` the ``questions`` and score its answers, which ``output`` keeps.

    Raises HaltError (resumable) when the endpoint or engine breaks or the budget ends, FailureThresholdError when too
    many questions got no answer.
    """
    known = load_questions(questions)
    asked = dict(islice(known.items(), config.limit))
    store = AnswerStore(
        "eqbench", output, config, {"policy": policy.digest}, [questions], overwrite=overwrite, resume=resume
    )
    held = raw_by_iteration(store.rows, known, questions)
    run = _Run(Respondent(policy, config, store.folder, progress), asked, config)
    progress.start("evaluate eqbench", len(asked) * config.iterations, "questions")
    names = [str(number) for number in range(1, config.iterations + 1)]
    answers = [Answers.of_raw(name, run.iteration(name, held.get(name, {})), revision=run.revision) for name in names]
    summary = score_answers(
        answers, asked, [questions], config, output=output, overwrite=overwrite or resume, origin=store.origin
    )
    store.clear()
    failed = summary.counts.get("failed_calls", 0)
    return check_failures(run.with_calls(summary), failed, len(asked) * config.iterations, config.max_failed)


class _Run:
    """The questions asked of one model."""

    def __init__(self, respondent: Respondent, questions: Mapping[str, Question], config: EqBenchConfig) -> None:
        self.respondent, self.questions, self.config = respondent, questions, config
        self.is_harness = config.aggregation == "lm-eval"
        self.revision = bool(config.revision) and not self.is_harness
        self.tries = 1 if self.is_harness else config.tries

    def iteration(self, name: str, held: Mapping[str, Raw]) -> dict[str, Raw]:
        """The last answer to each question; ``held`` are known from before, those without an answer asked again."""
        found = {key: raw for key, raw in held.items() if raw.answer is not None and key in self.questions}
        open_keys = [key for key in self.questions if key not in found]
        for attempt in range(self.tries):
            if not open_keys:
                break
            asked = [self._asked(name, key, attempt) for key in open_keys]
            replies = dict(
                zip(open_keys, self.respondent.ask(asked, temperature=self._temperature(attempt)), strict=True)
            )
            for key, reply in replies.items():
                found[key] = _latest(found.get(key), reply, attempt + 1)
            open_keys = [key for key, reply in replies.items() if not self._is_read(key, reply)]
        return {key: found[key] for key in self.questions}

    def _asked(self, name: str, key: str, attempt: int) -> Asked:
        prompt = Message("user", self.questions[key].text(revision=self.revision))
        seed = seed_for(self.config.sampling_seed, int(name), key, 0, 0, "policy", attempt)
        return Asked(f"{name}/{key}/{attempt}", (prompt,), seed)

    def _temperature(self, attempt: int) -> float:
        first = 0.0 if self.is_harness else FIRST_TEMPERATURE
        return (first if self.config.temperature is None else self.config.temperature) + WARMER * attempt

    def _is_read(self, key: str, reply: Reply) -> bool:
        """A block that can be scored is in the answer: the last of the prompt's mode."""
        if reply.text is None:
            return False
        blocks = parse_answer(reply.said, revision=self.revision)
        return is_valid(blocks[1 if self.revision else 0], self.questions[key].reference, zeros_count=self.is_harness)

    def with_calls(self, summary: StageSummary) -> StageSummary:
        """``summary`` with how the model was asked and what the calls came to."""
        temperatures = [self._temperature(attempt) for attempt in range(self.tries)]
        settings = {"tries": self.tries, "revision": self.revision, "temperatures": temperatures}
        respondent = self.respondent
        return with_asking(summary, self.config, respondent.policy.digest, respondent.called, settings)


def _latest(before: Raw | None, reply: Reply, tries: int) -> Raw:
    """A later answer counts; a call that failed does not take an earlier answer away."""
    if reply.text is None and before is not None and before.answer is not None:
        return Raw(before.answer, before.finish_reason, tries)
    return Raw(reply.text, reply.finish_reason, tries, reply.error)
