"""``dialrl evaluate sage --engine``: a model talks with SAGE's users, whom another model plays by the emotion rules.

The conversations are a rollout in the environment ``sage``; here they are put into the published shape, so that live
and stored ones are scored, and checked, by the same code. Not here: the simulator (``dialrl.environment.sage``).
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dialrl.environment.sage.profiles import load_profiles
from dialrl.environment.sage.rules import RULES, EmotionRules
from dialrl.errors import UsageError
from dialrl.evaluate.answer_store import check_failures
from dialrl.evaluate.benchmark_config import SageConfig
from dialrl.evaluate.respondent import with_asking
from dialrl.evaluate.rolled_out import WHY, dialogues_place, rollout_of
from dialrl.evaluate.sage import score_conversations
from dialrl.evaluate.sage_conversations import band, read_conversations
from dialrl.evaluate.stored import Stored
from dialrl.progress import SILENT, Progress
from dialrl.rollout.stage import Policy, roll_out
from dialrl.summary import StageSummary
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import table_to_dialogues
from dialrl.trajectory.schema import KEYS
from dialrl.trajectory.writer import refuse_existing

Json = dict[str, Any]
READS = (
    *KEYS,
    "scenario_id",
    "messages",
    "reply",
    "director",
    "end_reason",
    "outcome",
    "final_messages",
    "status",
    "error",
)
_ENDINGS = {"collapse": "failure"}


def run_sage(
    policy: Policy,
    questions: Path,
    config: SageConfig,
    *,
    output: Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Let ``policy`` talk with the users in ``questions`` and score the conversations, which ``output`` keeps.

    Raises UsageError without a simulator, HaltError (resumable) when an endpoint or engine breaks or the budget ends,
    FailureThresholdError when too many conversations broke.
    """
    if not config.simulator.get("model"):
        raise UsageError("SAGE needs a model that plays the users: --simulator NAME (reached at --base-url, too).")
    if output is not None and not resume:
        refuse_existing(output, overwrite=overwrite)
    profiles = load_profiles(questions)[: config.limit]
    with dialogues_place(output) as dialogues:
        rolled = roll_out(
            policy, dialogues, _rollout(questions, len(profiles), config), overwrite=overwrite, resume=resume,
            progress=progress,
        )  # fmt: skip
        stored, failed = conversations_of(dialogues, RULES[config.rules])
    summary = score_conversations(
        read_conversations(stored, RULES[config.rules]),
        [questions],
        config,
        absent=0,
        output=output,
        overwrite=overwrite or resume,
        origin={"policy": policy.digest},
        failed=failed,
    )
    told = {
        "simulator": config.simulator,
        "temperature": 1.0 if config.temperature is None else config.temperature,
    }
    asked = with_asking(summary, config, policy.digest, rolled.figures.get("calls", {}), told)
    return check_failures(asked, len(failed), len(profiles), config.max_failed, advice=WHY)


def _rollout(questions: Path, users: int, config: SageConfig) -> Any:
    options = {
        "profiles": str(questions),
        "simulator": config.simulator,
        "rules": config.rules,
        "limit": config.limit,
        **({} if config.prompts is None else {"prompts": config.prompts}),
        **config.simulator_options,
    }
    return rollout_of(config, "sage", options, split="test", groups=users, samples=1)


def conversations_of(path: Path, rules: EmotionRules) -> tuple[list[Stored], dict[str, str]]:
    """The conversations of a rollout in the environment sage in the published shape, and the errors of broken ones."""
    whole: list[Stored] = []
    failed: dict[str, str] = {}
    for table in TrajectoryFile.open(path).groups(list(READS)):
        for rows in table_to_dialogues(table):
            key = rows[0]["scenario_id"]
            if rows[-1]["status"] == "error" or rows[-1]["end_reason"] == "timeout":
                failed[key] = str(rows[-1]["error"] or "timeout: the simulator did not answer in time")
                continue
            value = _published(key, rows, rules)
            whole.append(Stored(path, json.dumps(value, ensure_ascii=False), value, len(whole) + 1))
    return whole, failed


def _published(key: str, rows: Sequence[Json], rules: EmotionRules) -> Json:
    history = list(_history(rows, rules))
    final = next(line["emotion-point"] for line in reversed(history) if line["role"] == "user")
    ending = rows[-1]["end_reason"]
    return {
        "id": key,
        "emo_point": final,
        "emo_state": f"Emotion-{band(final)}",
        "ending": _ENDINGS.get(ending, ending),
        "history": history,
    }


def _history(rows: Sequence[Json], rules: EmotionRules) -> Iterator[Json]:
    """Lines of user and policy; a user's later line has the change that led to it."""
    emotion = rules.start
    for row in rows:
        if row["director"] is None:
            yield _user_line(row["messages"], emotion)
        else:
            change = float(row["director"]["argument"])
            emotion = rules.after(emotion, change)
            yield _user_line(row["messages"], emotion, change, row["director"]["guidance"])
        if row["reply"] is not None:
            yield {"role": "assistant", "content": row["reply"]}
    last = rows[-1]
    if last["outcome"] is not None and last["reply"] is not None:
        # The file keeps no director's entry after the last reply; the outcome tells where the emotion ended.
        final = round(100.0 * last["outcome"], 6)
        yield _user_line(last["final_messages"], final, final - emotion)


def _user_line(
    messages: Sequence[Json] | None, emotion: float, change: float | None = None, thought: str | None = None
) -> Json:
    said = [message["content"] for message in messages or () if message["role"] == "user"]
    line: Json = {"role": "user", "content": said[-1] if said else "", "emotion-point": emotion}
    return line if change is None else {**line, "planning": {"change": change, "analyse": thought or ""}}
