"""Builds the demo's base policy: a tiny language model that speaks well and chooses badly (``dialrl demo-policy``).

It copies the user's own words, and its choices are those of the weak mixture, so that reinforcement learning has
everything to choose from and much to gain. What was measured on held-out scenarios stands in ``report.json`` beside the
weights. Needs the extra ``train``.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dialrl.engine.base import GenerationRequest, SamplingSettings
from dialrl.environment.demo.acts import Act, words_of
from dialrl.environment.demo.base_directory import REPORT_FILE, base_policy_directory
from dialrl.environment.demo.base_tokenizer import build_tokenizer
from dialrl.environment.demo.base_training import DialogueEncoder, TrainingSettings, new_model, train
from dialrl.environment.demo.planner import solve
from dialrl.environment.demo.rules import State
from dialrl.environment.demo.scenario import DemoScenario, scenarios
from dialrl.environment.demo.tracker import track
from dialrl.environment.demo.words import SLOT_WORDS
from dialrl.environment.demo.world import DemoUser
from dialrl.errors import RunError
from dialrl.model.threads import fit_threads
from dialrl.progress import SILENT, Progress
from dialrl.seeds import seed_for

MINIMUM_SLOT_ACCURACY = 0.90
MAXIMUM_SHARE = 0.25


@dataclass(frozen=True)
class DemoPolicyReport:
    """What the base policy does on held-out scenarios, sampling at temperature 1.

    ``slot_accuracy``: of the feelings, topics and details it mentions, the share that the user has said. ``acts``:
    share of each act among its replies. ``value``: J, ``share``: (J - silent)/(optimum - silent). ``revealed``: share
    of dialogues in which the user told the detail.
    """

    seed: int
    steps: int
    parameters: int
    vocabulary: int
    loss: float
    dialogues: int
    slot_mentions: dict[str, int]
    slot_accuracy: dict[str, float]
    acts: dict[str, float]
    revealed: float
    value: float
    share: float


def build_demo_policy(
    output: Path,
    *,
    seed: int = 0,
    steps: int | None = None,
    progress: Progress = SILENT,
    check: bool = True,
    overwrite: bool = False,
    given: Sequence[DemoScenario] | None = None,
) -> DemoPolicyReport:
    """Trains the base policy and writes it, with its tokenizer and report, as a transformers directory.

    Takes some minutes on one core. ``given``: the scenarios it is measured on, default four times every held-out one.
    Raises OutputExistsError for an output that may not be replaced; RunError, after writing, when ``check`` and the
    policy is no good start: slot accuracy below 0.90 or a share of 0.25 or more.
    """
    settings = TrainingSettings() if steps is None else TrainingSettings(steps=steps)
    tokenizer = build_tokenizer()
    model = new_model(tokenizer, seed)
    fit_threads(model)
    losses = train(model, tokenizer, settings, seed=seed, progress=progress)
    model.generation_config.update(do_sample=True, temperature=1.0, eos_token_id=tokenizer.eos_token_id)
    given = scenarios("test") * 4 if given is None else given
    loss = _mean(losses[-50:])
    report = measure(model, tokenizer, given, seed=seed, steps=settings.steps, loss=loss, progress=progress)
    with base_policy_directory(output, overwrite=overwrite) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        (folder / REPORT_FILE).write_text(json.dumps(asdict(report), indent=2) + "\n", encoding="utf-8")
    if check:
        _check(report, output)
    return report


def measure(
    model: Any,
    tokenizer: Any,
    given: Sequence[DemoScenario],
    *,
    seed: int = 0,
    steps: int = 0,
    loss: float = 0.0,
    progress: Progress = SILENT,
) -> DemoPolicyReport:
    """Samples one dialogue of every scenario given, and counts. The share is that of the held-out scenarios."""
    users = sample_dialogues(model, tokenizer, given, seed, progress=progress)
    mentions, right = _slots(users)
    acts = Counter(turn.act for user in users for turn in track(user.transcript).turns)
    value = _mean([State(user.scenario.need).distance - user.state.distance for user in users])
    return DemoPolicyReport(
        seed=seed,
        steps=steps,
        parameters=model.num_parameters(),
        vocabulary=len(tokenizer),
        loss=round(loss, 4),
        dialogues=len(users),
        slot_mentions=dict(mentions),
        slot_accuracy={kind: round(right[kind] / max(1, mentions[kind]), 4) for kind in mentions},
        acts={act.name: round(acts[act] / acts.total(), 4) for act in Act},
        revealed=round(_mean([float(user.state.revealed) for user in users]), 4),
        value=round(value, 4),
        share=round(solve(scenarios("test")).share(value), 4),
    )


def sample_dialogues(
    model: Any, tokenizer: Any, given: Sequence[DemoScenario], seed: int, *, progress: Progress = SILENT
) -> list[DemoUser]:
    """One dialogue of each scenario given, all in step, replies drawn at temperature 1."""
    from dialrl.engine.hf import HfEngine

    engine = HfEngine(model, stop_ids=[tokenizer.eos_token_id])
    encode, sampling = DialogueEncoder(tokenizer), SamplingSettings(max_reply_tokens=24)
    seeds = [seed_for(seed, 0, each.scenario_id, place, 0, "demo user") for place, each in enumerate(given)]
    users = [DemoUser(each, number) for each, number in zip(given, seeds, strict=True)]
    begin = tokenizer.convert_tokens_to_ids("<|assistant|>")
    progress.start("measure the base policy", len(users), "dialogues")
    while open_users := [place for place, user in enumerate(users) if user.end_reason is None]:
        requests = [
            GenerationRequest(
                [*encode(users[place].transcript)[0], begin],
                seed=seed_for(seed, 0, users[place].scenario.scenario_id, place, users[place].turn, "policy"),
                dialogue=str(place),
            )
            for place in open_users
        ]
        for place, reply in zip(open_users, engine.generate_block(requests, sampling), strict=True):
            users[place].respond(tokenizer.decode(reply.reply_ids, skip_special_tokens=True))
        progress.advance(sum(users[place].end_reason is not None for place in open_users))
    return users


def _slots(users: Sequence[DemoUser]) -> tuple[Counter[str], Counter[str]]:
    """How often a slot word of each kind was mentioned, and how often it was one that the user had said by then."""
    mentions, right = Counter[str](), Counter[str]()
    for user in users:
        said: set[str] = set()
        for line in user.transcript:
            words = words_of(line.content)
            if line.role == "user":
                said |= set(words)
                continue
            for kind, known in SLOT_WORDS.items():
                mentions[kind] += sum(word in known for word in words)
                right[kind] += sum(word in known and word in said for word in words)
    return mentions, right


def _check(report: DemoPolicyReport, output: Path) -> None:
    weak = [kind for kind, accuracy in report.slot_accuracy.items() if accuracy < MINIMUM_SLOT_ACCURACY]
    if weak or report.share >= MAXIMUM_SHARE:
        raise RunError(
            f"The base policy in {output} is no good start for reinforcement learning: slot accuracy"
            f" {report.slot_accuracy} (at least {MINIMUM_SLOT_ACCURACY} each), share of optimum {report.share}"
            f" (below {MAXIMUM_SHARE}). Train longer (more steps) or with another seed."
        )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
