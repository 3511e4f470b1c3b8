"""Cards as scenarios, a session a dialogue, and the models and prompts they share."""

from collections.abc import Sequence
from typing import Any

from dialrl.config import nearest, validated
from dialrl.endpoint.calls import ModelCalls
from dialrl.endpoint.settings import ModelSettings
from dialrl.environment.base import DirectorAction
from dialrl.environment.support.options import SupportOptions
from dialrl.environment.support.session import SupportSession
from dialrl.errors import InputError, RunError, UsageError
from dialrl.prompts import Prompts
from dialrl.scenario.card import Scenario
from dialrl.scenario.cards import cards_digest, load_cards
from dialrl.scenario.split import refuse_test_cards
from dialrl.scenario.support_card import SupportCard, read_card

SPLITS = ("train", "test")
PROMPTS = tuple(f"support/{name}.jinja" for name in ("actor", "director", "guidance", "policy", "start"))


class SupportEnvironment:
    """``options``: ``SupportOptions``; cards can be listed and judged without an actor, dialogues not be held."""

    name = "support"
    accepts_silence = False

    def __init__(self, **options: Any) -> None:
        self.options = validated(SupportOptions, options, where="environment_options")
        self.prompts = Prompts(self.options.prompts)
        self._cards = {card.id: card for card in load_cards(self.options.cards)}
        self._calls: ModelCalls | None = None

    @property
    def turn_limit(self) -> int:
        return self.options.turn_limit

    def connect(self, calls: ModelCalls) -> None:
        """Ask through ``calls``."""
        self._calls = calls

    @property
    def provenance(self) -> dict[str, str]:
        """What made the dialogues besides the options, for the lineage."""
        return {"prompts": self.prompts.digest(*PROMPTS), "cards": cards_digest(list(self._cards.values()))}

    @property
    def calls(self) -> ModelCalls:
        if self._calls is None:
            raise RunError("The environment 'support' was used before connect(); roll out by dialrl.rollout.stage.")
        return self._calls

    @property
    def actor(self) -> ModelSettings:
        """Who plays the person; raises UsageError when nobody does."""
        if self.options.actor is None:
            raise UsageError(
                "The environment 'support' needs a model that plays the person: --set"
                " environment_options.actor.model=NAME, and where it is reached: --set"
                " endpoints.default.base_urls=http://localhost:8000/v1"
            )
        return self.options.actor

    def scenarios(self, split: str) -> Sequence[Scenario]:
        """The cards of a split, by id. A training card that is a test card, its own or a shipped one, is refused."""
        if split not in SPLITS:
            raise UsageError(f"Support cards have no split '{split}'; expected one of: {', '.join(SPLITS)}.")
        chosen = [card for card in self._cards.values() if card.split == split]
        if split == "train":
            own = [card for card in self._cards.values() if card.split == "test"]
            shipped = [] if self.options.cards is None else [c for c in load_cards() if c.split == "test"]
            refuse_test_cards(chosen, [*own, *shipped])
        languages = self.options.languages
        return [_scenario(card) for card in chosen if not languages or card.language in languages]

    def find(self, scenario_id: str) -> Scenario:
        """The card of that id. Raises InputError when there is none."""
        if scenario_id not in self._cards:
            raise InputError(
                f"There is no card '{scenario_id}'.{nearest(scenario_id, self._cards)} See: dialrl scenarios list"
                " --environment support; cards of your own: environment_options.cards."
            )
        return _scenario(self._cards[scenario_id])

    def graded_outcome(self, end_reason: str, deficit: Sequence[float], position: Sequence[float]) -> float | None:
        """1 for a success, else 0."""
        return float(end_reason == "success")

    def open(self, scenario: Scenario, seed: int) -> SupportSession:
        """A dialogue with the person of ``scenario``. Raises UsageError when no actor is configured."""
        card = read_card(scenario.card, f"scenario '{scenario.scenario_id}'")
        _ = self.actor
        return SupportSession(self, card, seed)

    def policy_prompt(self, card: SupportCard) -> str | None:
        """The policy's system prompt, which knows nothing of the card but its language."""
        if not self.options.system_prompt:
            return None
        return self.prompts.render("support/policy.jinja", language=card.language).strip()

    def guidance(self, action: DirectorAction, piece: str | None) -> str:
        """The director's decision in words for the actor."""
        return self.prompts.render(
            "support/guidance.jinja", tool=action.tool, argument=action.argument, piece=piece
        ).strip()


def _scenario(card: SupportCard) -> Scenario:
    return Scenario(card.id, card.split, card.model_dump(mode="json"))
