"""The environment ``search``: asks a question, runs the policy's searches, and scores its answer by word-set F1.

A malformed reply is an error that the policy sees and may repair a few times; then the dialogue ends as a format
failure. A retriever that fails or hangs breaks the dialogue: that is not the policy's fault. Source: docs/search.md;
arXiv 2510.14967. Not here: the grammar, retrievers, turn and token limits (the rollout's).
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from dialrl.config import StageConfig, semantic, validated
from dialrl.environment.base import DialogueState, EnvironmentStep, PolicyReply
from dialrl.environment.search.grammar import Answer, Fault, Search, read_reply
from dialrl.environment.search.passages import given_or_shipped
from dialrl.environment.search.retriever import Passage, Retriever, open_retriever
from dialrl.errors import InputError, RunError, UsageError
from dialrl.scenario.answers import best_over, word_set_f1
from dialrl.scenario.card import Scenario
from dialrl.scenario.message import Message
from dialrl.scenario.questions import Question, load_questions
from dialrl.trajectory.reader import file_digest

SYSTEM_PROMPT = (
    "Answer the question. Think first, then do one of two things in each turn. To look something up, write one call:"
    ' <tool_call>{{"name": "search", "arguments": {{"query": ["..."]}}}}</tool_call> with up to {max_queries} queries.'
    " When you know the answer, write it, short, between <answer> and </answer>."
)
NOTHING_FOUND = "Nothing was found."


class SearchOptions(StageConfig):
    """Options of the environment search (key ``environment_options``)."""

    questions: str = semantic(help="Questions as dialrl import qa writes them; search-world/questions.jsonl ships.")
    retriever: str = semantic("bm25", help="What finds passages: bm25, http, or an installed one.")
    retriever_options: dict[str, Any] = semantic({}, help="Options of the retriever.")
    system_prompt: str | None = semantic(None, help="Text before the question; none: the built-in one; empty: no text.")
    tool_role: Literal["tool", "user"] = semantic("tool", help="Role of search results in the chat template.")
    turn_limit: int = semantic(10, help="Policy turns after which a dialogue is cut.", ge=1)
    top_k: int = semantic(3, help="Passages a query.", ge=1)
    max_queries: int = semantic(3, help="Queries in one call.", ge=1)
    max_repairs: int = semantic(2, help="Malformed replies the policy may repair; one more ends the dialogue.", ge=0)
    passage_characters: int = semantic(1000, help="Characters of a passage that are shown.", ge=1)
    search_attempts: int = semantic(2, help="Tries of one search before the dialogue breaks.", ge=1)
    search_timeout_seconds: float = semantic(30.0, help="Time limit of one try.", gt=0)


class SearchEnvironment:
    """Questions as scenarios. An empty reply is a malformed one, so silence is answered and not counted as stuck.

    ``provenance``: the digest of the questions, for the lineage.
    """

    name = "search"
    accepts_silence = True

    def __init__(self, **options: Any) -> None:
        self.options = validated(SearchOptions, options, where="environment search, environment_options")
        self.turn_limit = self.options.turn_limit
        place = given_or_shipped(self.options.questions)
        self._questions = {question.id: question for question in load_questions(place)}
        self.provenance = {"questions": file_digest(place)}
        self._retriever: Retriever | None = None

    def scenarios(self, split: str) -> Sequence[Scenario]:
        """The questions of ``split``."""
        found = [_scenario(question) for question in self._questions.values() if question.split == split]
        if not found:
            known = sorted({question.split for question in self._questions.values()})
            raise UsageError(f"'{self.options.questions}' has no questions of the split '{split}'; it has: {known}.")
        return found

    def find(self, scenario_id: str) -> Scenario:
        """The question of that id."""
        if scenario_id not in self._questions:
            raise InputError(f"'{self.options.questions}' has no question '{scenario_id}'.")
        return _scenario(self._questions[scenario_id])

    def graded_outcome(self, end_reason: str, deficit: Sequence[float], position: Sequence[float]) -> float | None:
        """None: the answer decides."""
        return None

    def open(self, scenario: Scenario, seed: int) -> "SearchSession":
        """A dialogue about one question."""
        if self._retriever is None:  # opened when searched with: judging needs the questions alone
            self._retriever = open_retriever(self.options.retriever, self.options.retriever_options)
        return SearchSession(scenario, self.options, self._retriever)


class SearchSession:
    """One dialogue."""

    def __init__(self, scenario: Scenario, options: SearchOptions, retriever: Retriever) -> None:
        self._question: str = scenario.card["question"]
        self._answers: list[str] = scenario.card["answers"]
        self._options, self._retriever = options, retriever
        self._faults = 0

    async def opening(self) -> EnvironmentStep:
        given = self._options.system_prompt
        system = SYSTEM_PROMPT.format(max_queries=self._options.max_queries) if given is None else given
        before = (Message("system", system),) if system else ()
        return EnvironmentStep((*before, Message("user", self._question)))

    async def respond(self, reply: PolicyReply, state: DialogueState | None) -> EnvironmentStep:
        """Results of a search, the fault of a malformed reply, or the end.

        Every step carries the outcome it would have if a limit cut the dialogue there: 0.
        """
        asked = read_reply(reply.text, max_queries=self._options.max_queries)
        if isinstance(asked, Answer):
            return EnvironmentStep((), "answer", self._worth(asked.text))
        if isinstance(asked, Fault):
            return self._repairable(asked)
        return EnvironmentStep((self._tool(await self._results(asked)),), outcome=0.0)

    def _worth(self, answer: str) -> float | None:
        """The best F1 over the accepted answers; not known without any."""
        return best_over(word_set_f1, answer, self._answers) if self._answers else None

    def _repairable(self, fault: Fault) -> EnvironmentStep:
        self._faults += 1
        flags = (f"format_{fault.kind}",)
        if self._faults > self._options.max_repairs:
            return EnvironmentStep((), "format_failure", 0.0, flags)
        return EnvironmentStep((self._tool(f"Error: {fault.message}"),), outcome=0.0, flags=flags)

    def _tool(self, text: str) -> Message:
        role = self._options.tool_role
        return Message(role, text, name="search" if role == "tool" else None)

    async def _results(self, asked: Search) -> str:
        found = await self._found(asked.queries)
        shown = [self._shown(passages) for passages in found]
        if len(shown) == 1:
            return shown[0]
        return "\n\n".join(f'Results for "{query}":\n{text}' for query, text in zip(asked.queries, shown, strict=True))

    def _shown(self, passages: Sequence[Passage]) -> str:
        limit = self._options.passage_characters
        lines = [f"[{n}] {p.title + ': ' if p.title else ''}{p.text[:limit]}" for n, p in enumerate(passages, start=1)]
        return "\n".join(lines) or NOTHING_FOUND

    async def _found(self, queries: Sequence[str]) -> list[list[Passage]]:
        failure = "nothing was tried"
        for _ in range(self._options.search_attempts):
            try:
                search = self._retriever.search(queries, self._options.top_k)
                return await asyncio.wait_for(search, self._options.search_timeout_seconds)
            except TimeoutError:
                failure = f"no answer within {self._options.search_timeout_seconds:g} s"
            except Exception as error:  # noqa: BLE001 - a retriever that breaks is tried again, whatever it raised
                failure = f"{type(error).__name__}: {error}"
        raise RunError(f"The search failed {self._options.search_attempts} times: {failure}")


def _scenario(question: Question) -> Scenario:
    card = {"question": question.question, "answers": list(question.answers), "source": question.source}
    return Scenario(question.id, question.split, card)
