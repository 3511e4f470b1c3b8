"""Train and test cards, kept apart: who is assigned where, and the guard that lets no test card into training.

A test card is known by its id and by what it tells: a copy under another name is refused too. Pure.
"""

import hashlib
from collections import defaultdict
from collections.abc import Sequence

from dialrl.errors import UsageError
from dialrl.scenario.support_card import SupportCard
from dialrl.seeds import seed_for


def story_hash(card: SupportCard) -> str:
    """Hash of the words of the story, whatever the card's id, split, names of fields, case or spacing."""
    texts = (card.trigger, card.thread, *card.stages.told().values(), *card.memories.told().values())
    letters = "".join(letter for text in texts for letter in text.casefold() if letter.isalnum())
    return hashlib.sha256(letters.encode()).hexdigest()


def refuse_test_cards(train: Sequence[SupportCard], test: Sequence[SupportCard]) -> None:
    """Raise UsageError when a card of ``train`` is one of ``test``, by id or by its story."""
    ids = {card.id for card in test}
    stories = {story_hash(card): card.id for card in test}
    for card in train:
        twin = card.id if card.id in ids else stories.get(story_hash(card))
        if twin is not None:
            raise UsageError(
                f"The training card '{card.id}' is the test card '{twin}'. What is trained on cannot be tested on:"
                " take it out of the training cards."
            )


def assign_split(cards: Sequence[SupportCard], test_share: float, seed: int) -> list[SupportCard]:
    """``cards`` with a share of each language in the test split, drawn by the seed; at least one if the share is > 0.

    Example: 40 English and 10 Korean cards at 0.2 give 8 and 2 test cards.
    """
    by_language: dict[str, list[SupportCard]] = defaultdict(list)
    for card in cards:
        by_language[card.language].append(card)
    chosen: set[str] = set()
    for group in by_language.values():
        drawn = sorted(group, key=lambda card: seed_for(seed, 0, card.id, 0, 0, "split"))
        count = max(1, round(test_share * len(group))) if test_share > 0 else 0
        chosen.update(card.id for card in drawn[:count])
    return [card.model_copy(update={"split": "test" if card.id in chosen else "train"}) for card in cards]
