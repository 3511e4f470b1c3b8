"""``dialrl evaluate emobench --engine``: asks a model EmoBench's items in prompts of our own wording.

Scoring 2025: one greedy answer an item in the shipped order, with the letters of all its questions, and by default one
more in a shuffled order. Scoring 2024: five answers in each of four orders; EU asks for the emotion first and names it
in the question for the cause. Not here: scores (``emobench``), reading letters (``emobench_asked``).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from dialrl.errors import InputError
from dialrl.evaluate.answer_store import AnswerStore, check_failures
from dialrl.evaluate.benchmark_config import EmoBenchConfig
from dialrl.evaluate.emobench import first_of_each, only_files, score_said
from dialrl.evaluate.emobench_answers import Items
from dialrl.evaluate.emobench_asked import BOTH, Said, Slot, parts_of, read_letters, said_by_item
from dialrl.evaluate.emobench_items import Item, Part, letter, load_items, shown_order
from dialrl.evaluate.reply import Asked, Reply
from dialrl.evaluate.respondent import Respondent, with_asking
from dialrl.progress import SILENT, Progress
from dialrl.prompts import Prompts
from dialrl.rollout.stage import Policy
from dialrl.scenario.message import Message
from dialrl.seeds import seed_for
from dialrl.summary import StageSummary

PROMPT = "evaluate/emobench.jinja"
TEMPERATURES = {"2025": 0.0, "2024": 0.6}
ORDERS, SAMPLES = {"2025": 1, "2024": 3}, {"2025": 1, "2024": 5}
Key = tuple[str, str, str]


def run_emobench(
    policy: Policy,
    questions: Sequence[Path],
    config: EmoBenchConfig,
    *,
    output: Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Ask ``policy`` the items in ``questions`` and score its answers, which ``output`` keeps.

    Raises HaltError (resumable) when the endpoint or engine breaks or the budget ends, FailureThresholdError when too
    many items got no answer.
    """
    items, files = load_items(questions), only_files(questions)
    asked = _chosen(items, config)
    run = _Run(asked, config)
    origin = {"policy": policy.digest, "prompts": run.digest}
    store = AnswerStore("emobench", output, config, origin, files, overwrite=overwrite, resume=resume)
    run.said = dict(said_by_item(store.rows, items, files[0]))
    respondent = Respondent(policy, config, store.folder, progress)
    progress.start("evaluate emobench", run.calls, "questions")
    run.ask(respondent)
    summary = score_said(
        run.said, items, files, config, output=output, overwrite=overwrite or resume, origin=store.origin
    )
    store.clear()
    settings = {"temperature": run.temperature, "prompts": run.digest, "samples": run.samples, "orders": run.orders}
    failed = summary.counts.get("failed_items", 0)
    return check_failures(
        with_asking(summary, config, policy.digest, respondent.called, settings), failed, len(asked), config.max_failed
    )


def _chosen(items: Items, config: EmoBenchConfig) -> list[Item]:
    """The items of the tasks and languages asked for, the first ``limit`` of each."""
    keys = first_of_each(items, config)
    if not keys:
        wanted = ", ".join([*config.tasks, *config.languages])
        raise InputError(f"No item of {wanted} is in the questions given.")
    return [items[key] for key in keys]


class _Run:
    """The items asked of one model; ``said`` grows round by round."""

    def __init__(self, items: Sequence[Item], config: EmoBenchConfig) -> None:
        self.items, self.config = items, config
        scoring = config.scoring or "2025"
        self.is_2024 = scoring == "2024"
        self.temperature = TEMPERATURES[scoring] if config.temperature is None else config.temperature
        self.orders = 1 + (ORDERS[scoring] if config.shuffled_orders is None else config.shuffled_orders)
        self.samples = SAMPLES[scoring] if config.samples is None else config.samples
        self.prompts = Prompts(config.prompts)
        self.digest = self.prompts.digest(PROMPT)
        self.said: dict[Key, Said] = {}

    def _parts(self, item: Item) -> tuple[str, ...]:
        """The rounds of an item: all its questions at once, or of 2024's EU one after the other."""
        return tuple(part.name for part in item.parts) if self.is_2024 and len(item.parts) > 1 else (BOTH,)

    @property
    def calls(self) -> int:
        return sum(len(self._parts(item)) for item in self.items) * self.orders * self.samples

    def ask(self, respondent: Respondent) -> None:
        """Every question once, except those that have an answer."""
        for turn in range(max(len(self._parts(item)) for item in self.items)):
            wanted = [
                (item, Slot(order, sample, self._parts(item)[turn]))
                for item in self.items
                if turn < len(self._parts(item))
                for order in range(self.orders)
                for sample in range(self.samples)
            ]
            missing = [(item, slot) for item, slot in wanted if not self._has(item, slot)]
            asked = [self._asked(item, slot) for item, slot in missing]
            for (item, slot), reply in zip(missing, respondent.ask(asked, temperature=self.temperature), strict=True):
                self.said[item.key] = {**self.said.get(item.key, {}), slot: reply}

    def _has(self, item: Item, slot: Slot) -> bool:
        reply = self.said.get(item.key, {}).get(slot)
        return reply is not None and reply.text is not None

    def _asked(self, item: Item, slot: Slot) -> Asked:
        text = self.prompts.render(
            PROMPT,
            language=item.language,
            scenario=item.scenario,
            subject=item.subject,
            emotion=self._emotion(item, slot),
            parts=[self._shown(item, part, slot.order) for part in parts_of(item, slot)],
        )
        name = "/".join(item.key)
        role = f"policy {slot.part}".strip()
        seed = seed_for(self.config.sampling_seed, slot.order, name, slot.sample, 0, role)
        key = f"{name}/{slot.order}/{slot.sample}/{slot.part}"
        return Asked(key, (Message("user", text.strip()),), seed)

    def _shown(self, item: Item, part: Part, order: int) -> Mapping[str, object]:
        places = shown_order(item, part, order, self.config.shuffle_seed)
        choices = [{"letter": letter(number), "text": part.choices[place]} for number, place in enumerate(places)]
        return {"name": part.name, "choices": choices}

    def _emotion(self, item: Item, slot: Slot) -> str | None:
        """The emotion that was named before its cause is asked for; None where none was."""
        if slot.part != "cause":
            return None
        before = Slot(slot.order, slot.sample, "emotion")
        reply: Reply | None = self.said[item.key].get(before)
        part = item.parts[0]
        place = None if reply is None else read_letters(reply.said, [part])[0]
        if place is None:
            return None
        return part.choices[shown_order(item, part, slot.order, self.config.shuffle_seed)[place]]
