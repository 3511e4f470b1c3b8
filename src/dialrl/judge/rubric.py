"""The judge ``rubric``: language models grade a reply on a rubric of ordinal levels; code does the arithmetic.

A prompt is the rubric, then the person, then the dialogue that only grows, then which reply to grade: everything but
the end is shared from turn to turn and a prefix cache reads it once (field case 31). Answers that were read well are
kept in the cache by the hash of the whole request; failures never (field case 30). Not here: reading an answer
(``reading``), several samples (``samples``), HTTP (``dialrl.endpoint``).
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from dialrl.config import validated
from dialrl.endpoint.calls import Answer, ModelCalls
from dialrl.endpoint.chat import PATH, chat_body, read_reply
from dialrl.endpoint.failure import ModelCallError
from dialrl.errors import RunError
from dialrl.judge.base import ROLE, TurnVerdict
from dialrl.judge.reading import Levels, Reading, answer_schema, read_answer
from dialrl.judge.rubric_options import PanelMember, RubricJudgeOptions
from dialrl.judge.samples import Sample, combined
from dialrl.prompts import Prompts
from dialrl.scenario.card import Scenario
from dialrl.scenario.fence import fenced
from dialrl.scenario.message import Message, Usage
from dialrl.scenario.support_card import judge_view
from dialrl.seeds import seed_for
from dialrl.state.rubric import load_rubric


class RubricJudge:
    """Grades on a rubric. ``options``: ``RubricJudgeOptions``; raises UsageError naming a wrong one.

    A judge with another system prompt, other options or another view of the card is a subclass.
    """

    name = "rubric"
    options_model: type[RubricJudgeOptions] = RubricJudgeOptions
    system_prompt = "judge/system.jinja"

    def __init__(self, **options: Any) -> None:
        self.options = validated(self.options_model, options, where="judge_options")
        self.rubric = self.options.rubric
        self._rubric = load_rubric(self.rubric)
        self._prompts = Prompts(self.options.prompts)
        self._indicator_levels = {part.name: [n.level for n in part.levels] for part in self._rubric.indicators}
        self._deficit_levels = {part.item: [n.level for n in part.levels] for part in self._rubric.deficit}
        indicators = [{**part.model_dump(), "name": part.name} for part in self._rubric.indicators]
        items = [{**part.model_dump(), "name": part.item} for part in self._rubric.deficit]
        self._grading_rules = self._prompts.render(self.system_prompt, rubric=self._rubric, parts=indicators)
        self._assessing_rules = self._prompts.render(self.system_prompt, rubric=self._rubric, parts=items)
        self._calls: ModelCalls | None = None

    def connect(self, calls: ModelCalls) -> None:
        """Ask through ``calls``."""
        self._calls = calls

    @property
    def provenance(self) -> dict[str, str]:
        """What made the grades besides the options, for the lineage."""
        names = (self.system_prompt, "judge/grade.jinja", "judge/assess.jinja")
        return {"prompts": self._prompts.digest(*names), "rubric": self._rubric.digest()}

    async def assess(self, scenario: Scenario, opening: Sequence[Message], seed: int) -> tuple[float, ...]:
        """P_0 by axis, from the card's own levels or asked. Raises RunError when the judge gives none."""
        levels = scenario.card.get("deficit") if self.options.assess == "card" else None
        if isinstance(levels, Mapping):
            return self._rubric.deficit_from_levels(levels)
        asked = self._prompts.render("judge/assess.jinja", case=self._case(scenario), dialogue=self._fenced(opening))
        verdict = await self._judged(self._assessing_rules, asked, self._deficit_levels, seed)
        if verdict.status == "missing":
            raise RunError(f"assessment missing: {verdict.error}")
        return self._rubric.deficit_from_levels({grade.indicator: grade.level for grade in verdict.grades})

    async def grade(self, scenario: Scenario, dialogue: Sequence[Message], turn: int, seed: int) -> TurnVerdict:
        """The verdict on the last reply of ``dialogue``. An empty reply is graded like any other."""
        asked = self._prompts.render(
            "judge/grade.jinja", case=self._case(scenario), dialogue=self._fenced(dialogue), reply=turn + 1
        )
        return await self._judged(self._grading_rules, asked, self._indicator_levels, seed)

    def view(self, scenario: Scenario) -> dict[str, Any]:
        """What the judge sees of the card."""
        return judge_view(scenario.card)

    def _case(self, scenario: Scenario) -> str:
        # JSON too: a card's text must not look like a part of the prompt.
        return json.dumps(self.view(scenario), ensure_ascii=False)

    def _fenced(self, dialogue: Sequence[Message]) -> str:
        return fenced(dialogue, self.options.longest_text_characters)

    async def _judged(self, rules: str, asked: str, levels: Levels, seed: int) -> TurnVerdict:
        messages = [Message("system", rules), Message("user", asked)]
        members = (self.options, *self.options.panel)
        samples = await asyncio.gather(
            *(
                self._sample(member, place * self.options.samples + number, messages, levels, seed)
                for place, member in enumerate(members)
                for number in range(self.options.samples)
            )
        )
        return combined(samples, list(levels))

    async def _sample(
        self, member: PanelMember, number: int, messages: Sequence[Message], levels: Levels, seed: int
    ) -> Sample:
        own_seed = seed_for(seed, 0, "", number, 0, "judge-sample")
        reading = Reading(error="not asked")
        usage: list[Usage] = []
        # A cut answer is asked again, once, with room for twice as much.
        for attempt, room in enumerate((1, 2)):
            settings = member.updated(max_tokens=member.max_tokens * room)
            body = chat_body(settings, messages, own_seed, **self._format(levels))
            try:
                answer, is_kept = await self._answer(settings, body, own_seed, attempt, number)
                reply = read_reply(ROLE, answer)
            except ModelCallError as error:
                return Sample(member.model, number, Reading(error=str(error)), tuple(usage))
            usage.append(reply.usage)
            reading = read_answer(reply.text, reply.finish_reason, levels)
            if reading.error is None and not is_kept:
                self._keep(member, body, number, answer)
            if reading.error != "truncated":
                break
        return Sample(member.model, number, reading, tuple(usage))

    async def _answer(
        self, settings: PanelMember, body: Mapping[str, Any], seed: int, attempt: int, number: int
    ) -> tuple[Answer, bool]:
        """The answer, and whether the cache had it."""
        if self._calls is None:
            raise RunError("The judge 'rubric' was asked before connect(); judge through dialrl.judge.stage.")
        cache = self._calls.cache
        kept = None if cache is None else cache.get(_question(settings, body, number))
        if kept is not None:
            self._calls.ledger.count(settings.endpoint, "from_cache")
            return kept, True
        return await self._calls.post(
            settings.endpoint, PATH, body, seed=seed, attempt=attempt, limit=settings.max_tokens
        ), False

    def _keep(self, member: PanelMember, body: Mapping[str, Any], number: int, answer: Answer) -> None:
        if self._calls is not None and self._calls.cache is not None:
            self._calls.cache.put(_question(member, body, number), answer)

    def _format(self, levels: Levels) -> dict[str, Any]:
        if self.options.response_format == "none":
            return {}
        if self.options.response_format == "json_object":
            return {"response_format": {"type": "json_object"}}
        schema = {
            "name": "grades",
            "strict": True,
            "schema": answer_schema(levels, self.options.longest_note_characters),
        }
        return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _question(member: PanelMember, body: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """What the cache knows an answer by: the request, and the sample where no seed in it tells samples apart."""
    return body if member.send_seed else {**body, "sample": number}
