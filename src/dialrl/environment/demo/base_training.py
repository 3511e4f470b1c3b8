"""Teaches a tiny language model the supervised dialogues of ``policy_data``.

The first steps show dialogues full of slot words, from which copying is learnt soonest; the rest show the weak mixture.
Loss on the replies' tokens and their end-of-turn tokens alone. Needs the extra ``train``. Not here: measuring the
result (``base_policy``), reinforcement learning (the stages).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from dialrl.environment.demo.acts import Act
from dialrl.environment.demo.base_tokenizer import CONTEXT_TOKENS, END_OF_TURN
from dialrl.environment.demo.policy_data import WEAK, Behaviour, training_dialogue
from dialrl.progress import SILENT, Progress
from dialrl.scenario.message import Message

_USERS_WORDS = {Act.VALIDATE: 1.0, Act.PARAPHRASE: 1.0, Act.ASK: 1.0}
COPYING = Behaviour(
    warm=_USERS_WORDS,
    other=_USERS_WORDS,
    told=_USERS_WORDS | {Act.RESONATE: 3.0, Act.EMPOWER: 3.0},
)


@dataclass(frozen=True)
class TrainingSettings:
    """How the base policy is taught."""

    steps: int = 2000
    copying_steps: int = 300
    dialogues_a_step: int = 16
    learning_rate: float = 3e-3
    warmup_steps: int = 50
    gradient_clip: float = 1.0
    weight_decay: float = 0.01

    def rate(self, step: int) -> float:
        """Share of the learning rate at a step: linear warm-up, then a cosine down to 5 %."""
        decay = 0.5 + 0.5 * math.cos(math.pi * min(1.0, step / self.steps))
        return min(1.0, (step + 1) / self.warmup_steps) * (0.05 + 0.95 * decay)


def new_model(tokenizer: Any, seed: int) -> Any:
    """An untrained 3-layer, 96-wide Qwen3 with untied embeddings (about 0.47M parameters)."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=96,
            intermediate_size=256,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=32,
            max_position_embeddings=CONTEXT_TOKENS,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


class DialogueEncoder:
    """Token ids of a transcript as the chat template renders it, and which of them are the policy's own."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids_of = cache(lambda text: tuple(tokenizer(text, add_special_tokens=False)["input_ids"]))
        self._end = tokenizer.convert_tokens_to_ids(END_OF_TURN)

    def __call__(self, transcript: Sequence[Message]) -> tuple[list[int], list[bool]]:
        """(ids, is the policy's) of a whole transcript.

        Example: user "Hi", assistant "So?" -> <|user|> Hi <|end|> <|assistant|> So ? <|end|>, the last three its own.
        """
        ids: list[int] = []
        own: list[bool] = []
        for message in transcript:
            content = [*self._ids_of(message.content), self._end]
            ids += [self._tokenizer.convert_tokens_to_ids(f"<|{message.role}|>"), *content]
            own += [False, *[message.role == "assistant"] * len(content)]
        return ids, own


Lesson = Callable[[int, int], Sequence[Message]]


def demo_lesson(settings: TrainingSettings) -> Lesson:
    """The demo world's dialogues: full of slot words in the first steps, then the weak mixture."""

    def lesson(step: int, number: int) -> Sequence[Message]:
        return training_dialogue(number, COPYING if step < settings.copying_steps else WEAK)[0][:-1]

    return lesson


def train(
    model: Any,
    tokenizer: Any,
    settings: TrainingSettings,
    *,
    seed: int,
    progress: Progress = SILENT,
    lesson: Lesson | None = None,
) -> list[float]:
    """Trains ``model`` in place; the loss of every step. Dialogue d of the run has the seed (``seed`` x 10^7 + d).

    ``lesson``: the dialogue shown at a step, by its seed, ending with a reply; default those of the demo world.
    """
    import torch

    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=settings.weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, settings.rate)
    encode, losses, shown = DialogueEncoder(tokenizer), [], lesson or demo_lesson(settings)
    model.train()
    progress.start("teach the base policy", settings.steps, "steps")
    for step in range(settings.steps):
        first = seed * 10_000_000 + step * settings.dialogues_a_step
        dialogues = [shown(step, first + place) for place in range(settings.dialogues_a_step)]
        loss = _loss(model, [encode(dialogue) for dialogue in dialogues], tokenizer.pad_token_id)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.gradient_clip)
        optimizer.step()
        schedule.step()
        losses.append(loss.detach().item())
        progress.advance(loss=losses[-1])
    model.eval()
    return losses


def _loss(model: Any, encoded: Sequence[tuple[list[int], list[bool]]], padding: int) -> Any:
    """Mean cross entropy of the policy's own tokens; the head runs at those places only."""
    import torch

    width = max(len(ids) for ids, _ in encoded)
    ids_DT = torch.tensor([ids + [padding] * (width - len(ids)) for ids, _ in encoded])
    own_DT = torch.tensor([own + [False] * (width - len(own)) for _, own in encoded])
    hidden_DT = model.model(input_ids=ids_DT).last_hidden_state[:, :-1]
    target_DT, own_DT = ids_DT[:, 1:], own_DT[:, 1:]
    return torch.nn.functional.cross_entropy(model.lm_head(hidden_DT[own_DT]), target_DT[own_DT])
