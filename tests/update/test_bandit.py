"""Learning against a closed form: a two-turn bandit dialogue whose best policy is known is learned by every loss.

The policy says LEFT or RIGHT; the answer names what it said and whether the second reply should repeat it or not; then
it says LEFT or RIGHT again. Reward 1 for a second reply as asked, and 0.5 for a first reply LEFT. The best policy says
LEFT, then does as asked: 1.5 of 1.5. One that is uniform over the 12 tokens gets 0.125, one that ignores what is asked
at most 1.0.
"""

from typing import Any

import numpy as np
import pytest
import torch
from tests.update.worlds import tiny_model

from dialrl.update.adapter import add_adapter
from dialrl.update.config import UpdateConfig
from dialrl.update.data import training_data
from dialrl.update.learner import Learner
from dialrl.update.plan import plan_steps
from dialrl.update.sequences import Limits, build_sequences
from dialrl.update.turns import Turn

START, LEFT, RIGHT, REPEAT, CHANGE = 0, 1, 2, 3, 4
DIALOGUES, STEPS = 64, 45
ANYTHING = Limits(256)


def draw(model: Any, contexts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One reply a context among all tokens, and its log-prob."""
    with torch.no_grad():
        table = model(contexts).logits[:, -1].log_softmax(-1)
    replies = torch.multinomial(table.exp(), 1)
    return replies, table.gather(1, replies)


def rollouts(model: Any, random: np.random.Generator) -> tuple[list[list[Turn]], float]:
    """Dialogues with returns centred over the batch, turn by turn, and their mean reward."""
    start = torch.full((DIALOGUES, 1), START)
    first, first_logprobs = draw(model, start)
    asked = torch.from_numpy(random.choice([REPEAT, CHANGE], size=(DIALOGUES, 1)))
    second, second_logprobs = draw(model, torch.cat([start, first, first, asked], dim=1))
    wanted = torch.where(asked == REPEAT, first, LEFT + RIGHT - first)
    rewards = np.stack([0.5 * (first == LEFT).numpy()[:, 0], (second == wanted).numpy()[:, 0]], axis=1)
    returns = rewards[:, ::-1].cumsum(axis=1)[:, ::-1]
    advantages = returns - returns.mean(axis=0)
    dialogues = [
        [
            _turn(number, 0, [START], first, first_logprobs, advantages),
            _turn(number, 1, [int(first[number]), int(asked[number])], second, second_logprobs, advantages),
        ]
        for number in range(DIALOGUES)
    ]
    return dialogues, float(rewards.sum(axis=1).mean())


def _turn(
    number: int, turn: int, prompt: list[int], reply: torch.Tensor, logprobs: torch.Tensor, advantages: Any
) -> Turn:
    return Turn(
        dialogue=f"bandit/{number}",
        turn=turn,
        segment=0,
        prompt_ids=np.array(prompt),
        reply_ids=np.array([int(reply[number])]),
        logprobs=np.array([float(logprobs[number])]),
        advantage=float(advantages[number, turn]),
        cut=False,
        ok=True,
        policy_step=None,
    )


@pytest.mark.parametrize(
    "recipe",
    [
        {"loss": "ppo", "epochs": 2, "mini_batch_dialogues": 32},
        {"loss": "gspo", "clip_low": 0.2, "clip_high": 0.28, "epochs": 2},
        {"loss": "cispo", "old_logprobs": "sampler"},
        {"loss": "reinforce"},
        {"loss": "ppo", "lora_rank": 8, "layout": "packed", "learning_rate": 1e-2},
    ],
    ids=lambda recipe: recipe["loss"] + ("-lora" if "lora_rank" in recipe else ""),
)
def test_the_best_policy_of_a_two_turn_dialogue_is_learned(recipe: dict[str, Any]) -> None:
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    config = UpdateConfig(**{"learning_rate": 5e-3, "max_mismatch": 10.0, **recipe})
    model = _with_adapter(config) if config.lora_rank else tiny_model(seed=1, layers=2)
    learner = Learner(model, config)
    rewards = []
    for step in range(STEPS):
        dialogues, reward = rollouts(learner.model, random)
        rewards.append(reward)
        sequences = [s for turns in dialogues for s in build_sequences(turns, lambda _: True, ANYTHING)]
        data = training_data(sequences)
        list(learner.train(data, plan_steps(data, config, step=step), config.learning_rate))
    assert rewards[0] < 0.6
    assert np.mean(rewards[-5:]) > 1.4


def _with_adapter(config: UpdateConfig) -> Any:
    """A head that can be certain, as a trained one is: frozen at its random size, no adapter could make it so."""
    pytest.importorskip("peft")
    model = tiny_model("llama", seed=1, layers=2)
    with torch.no_grad():
        model.lm_head.weight.mul_(3.0)
    add_adapter(model, config)
    return model
