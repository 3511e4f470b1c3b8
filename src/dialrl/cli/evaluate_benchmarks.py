"""``dialrl evaluate eqbench | emobench | sage | qa | agreement``: what is stored is scored, or a model is asked first.

Registered by ``evaluate``. Not here: any score.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from dialrl.cli.command import PLACES, Call, add_command, option
from dialrl.errors import UsageError
from dialrl.evaluate.benchmark_config import AgreementConfig, EmoBenchConfig, EqBenchConfig, QaConfig, SageConfig
from dialrl.summary import StageSummary

ONE_FILE, FILES = Path | None, list[Path] | None
MODEL = option(
    "model",
    str | None,
    "The model that is asked: its name at the endpoint, or a policy directory.",
    flags=("--model", "--policy"),
    panel=PLACES,
)


def register_benchmarks(group: typer.Typer) -> None:
    """Add the commands to the group ``dialrl evaluate``."""
    add_command(
        group,
        "eqbench",
        eqbench,
        help="EQ-Bench v2 score of stored answers, or of a model that is asked (--engine); -o writes one row an item.",
        config=EqBenchConfig,
        section="evaluate-eqbench",
        output="optional",
        resumable=True,
        extras=(
            MODEL,
            option("answers", ONE_FILE, "Result file of EQ-Bench v2.", panel=PLACES),
            option("questions", ONE_FILE, "The benchmark's questions.", panel=PLACES),
        ),
    )
    add_command(
        group,
        "emobench",
        emobench,
        help="EmoBench accuracy of stored answers, or of a model that is asked (--engine); -o writes one row an item.",
        config=EmoBenchConfig,
        section="evaluate-emobench",
        output="optional",
        resumable=True,
        extras=(
            MODEL,
            option("answers", FILES, "JSON lines of letters, or the CSV files of 2024. Repeatable.", panel=PLACES),
            option("questions", FILES, "EA.jsonl, EU.jsonl, or a folder of them. Repeatable.", panel=PLACES),
        ),
    )
    add_command(
        group,
        "sage",
        sage,
        help="SAGE score of stored conversations, or of a model (--engine); -o writes one row a conversation.",
        config=SageConfig,
        section="evaluate-sage",
        output="optional",
        resumable=True,
        extras=(
            MODEL,
            option("simulator", str | None, "The model that plays the users, by its name at its endpoint."),
            option("answers", ONE_FILE, "Stored conversations, JSON lines.", panel=PLACES),
            option("questions", ONE_FILE, "The simulator's profiles, to see which were played.", panel=PLACES),
        ),
    )
    add_command(
        group,
        "qa",
        qa,
        help="Word F1 and exact match of stored answers to questions, or of a model that searches (--engine); -o writes"
        " one row an answer.",
        config=QaConfig,
        section="evaluate-qa",
        output="optional",
        resumable=True,
        extras=(
            MODEL,
            option("answers", ONE_FILE, "JSON lines of id and answer, or dialogues of search.", panel=PLACES),
            option("questions", ONE_FILE, "The questions with their accepted answers.", panel=PLACES),
            option("training", FILES, "Questions or dialogues trained on: their ids are refused.", panel=PLACES),
        ),
    )
    add_command(
        group,
        "agreement",
        agreement,
        help="How far judges agree on the same dialogues, or one judge with itself: kappa, alpha, AC2, increments.",
        config=AgreementConfig,
        section="evaluate-agreement",
        inputs="Judged trajectory files: the same dialogues graded by several judges, or twice.",
    )


def eqbench(call: Call) -> StageSummary:
    config = asked_config(call, "answers")
    if config.engine is None:
        from dialrl.evaluate.eqbench import evaluate_eqbench

        answers, questions = _needed(call, "answers"), _needed(call, "questions")
        return evaluate_eqbench(answers, questions, config, output=call.output, overwrite=_may_replace(call))
    from dialrl.evaluate.eqbench_live import run_eqbench

    questions = _needed(call, "questions")
    with opened(call, config) as policy:
        return run_eqbench(policy, questions, config, **_places(call))


def emobench(call: Call) -> StageSummary:
    config = asked_config(call, "answers")
    if config.engine is None:
        from dialrl.evaluate.emobench import evaluate_emobench

        answers, questions = _needed(call, "answers"), call.extras["questions"] or ()
        return evaluate_emobench(answers, questions, config, output=call.output, overwrite=_may_replace(call))
    from dialrl.evaluate.emobench_live import run_emobench

    questions = _needed(call, "questions")
    with opened(call, config) as policy:
        return run_emobench(policy, questions, config, **_places(call))


def sage(call: Call) -> StageSummary:
    config = asked_config(call, "answers")
    if config.engine is None:
        from dialrl.evaluate.sage import evaluate_sage

        answers, questions = _needed(call, "answers"), call.extras["questions"]
        return evaluate_sage(answers, questions, config, output=call.output, overwrite=_may_replace(call))
    from dialrl.evaluate.sage_live import run_sage

    if call.extras["simulator"] is not None:
        config = config.updated(simulator={**config.simulator, "model": call.extras["simulator"]})
    questions = _needed(call, "questions")
    with opened(call, config) as policy:
        return run_sage(policy, questions, config, **_places(call))


def qa(call: Call) -> StageSummary:
    config, training = asked_config(call, "answers"), call.extras["training"] or ()
    if config.engine is None:
        from dialrl.evaluate.qa import evaluate_qa

        answers, questions = _needed(call, "answers"), _needed(call, "questions")
        replace = _may_replace(call)
        return evaluate_qa(answers, questions, config, training=training, output=call.output, overwrite=replace)
    from dialrl.evaluate.qa_live import run_qa

    questions = _needed(call, "questions")
    with opened(call, config) as policy:
        return run_qa(policy, questions, config, training=training, **_places(call))


def agreement(call: Call) -> StageSummary:
    from dialrl.evaluate.agreement import evaluate_agreement

    return evaluate_agreement(call.inputs, call.config, progress=call.progress)


def asked_config(call: Call, stored: str | None) -> Any:
    """The configuration with the engine that runs --model; ``engine`` None where what is stored is scored.

    Raises UsageError when both or half of it was asked for.
    """
    config, model = call.config, call.extras["model"]
    given = call.inputs if stored is None else call.extras[stored]
    if model is None and config.engine is None:
        return config
    if model is None:
        raise UsageError(f"--engine {config.engine} needs the model that it runs: --model NAME or a directory.")
    if given:
        raise UsageError("Either a model is asked (--model) or what is stored is scored, not both.")
    reached = config.base_url is not None or bool(config.endpoints)
    return config.updated(engine=config.engine or ("openai" if reached else "hf"))


@contextmanager
def opened(call: Call, config: Any) -> Iterator[Any]:
    """The policy that the configuration and --model name, until it has been asked.

    An output that may not be replaced is refused before a model loads.
    """
    from dialrl.evaluate.respondent import open_respondent_policy
    from dialrl.trajectory.writer import refuse_existing

    if call.output is not None and not call.resume:
        refuse_existing(call.output, overwrite=call.overwrite)
    policy = open_respondent_policy(call.extras["model"], config)
    try:
        yield policy
    finally:
        policy.engine.close()


def _places(call: Call) -> dict[str, Any]:
    return {
        "output": call.output, "overwrite": call.overwrite, "resume": call.resume, "progress": call.progress,
    }  # fmt: skip


def _may_replace(call: Call) -> bool:
    """Scores of stored answers are made anew in no time: to go on with them is to make them again."""
    return call.overwrite or call.resume


def _needed(call: Call, name: str) -> Any:
    """A file that must be given (an option cannot say so itself: --dry-run needs none)."""
    given = call.extras[name]
    if not given:
        raise UsageError(
            f"A file is missing: give --{name} FILE, or run a model: --engine openai --base-url URL --model NAME."
            if name == "answers"
            else f"A file is missing: give --{name} FILE."
        )
    return given
