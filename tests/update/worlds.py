"""Tiny random policies, advantage files written by hand, and a plain reference of the update. Not a test module.

``reference_loss`` is the whole of docs/credit.md 3 once more, in loops over dialogues and tokens and in float64,
without batching, padding, chunks or weights: slow, and easy to check against the text.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from dialrl.trajectory.lineage import Lineage, StageRecord
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.schema import schema_for
from dialrl.trajectory.writer import TrajectoryWriter
from dialrl.update.config import UpdateConfig
from dialrl.update.data import TrainingData, read_training_data
from dialrl.update.sequences import Limits

VOCABULARY = 12
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "max_reply_tokens": 16}
Row = dict[str, Any]


def tiny_model(kind: str = "qwen3", *, seed: int = 0, dtype: torch.dtype = torch.float32, layers: int = 2) -> Any:
    """A random causal language model of a few thousand parameters, in evaluation mode."""
    torch.manual_seed(seed)
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "max_position_embeddings": 256,
        "tie_word_embeddings": kind == "qwen3",
        "initializer_range": 0.3,
    }
    model = Qwen3ForCausalLM(Qwen3Config(**shape)) if kind == "qwen3" else LlamaForCausalLM(LlamaConfig(**shape))
    if dtype == torch.float64:
        _normalise_exactly(model)
    return model.to(dtype).eval()


def _normalise_exactly(model: Any) -> None:
    """Put torch's RMS norms in place of transformers' own, which round to float32 whatever the model's type."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child).__name__.endswith("RMSNorm"):
                norm = torch.nn.RMSNorm(child.weight.shape, eps=child.variance_epsilon)
                norm.weight = child.weight
                setattr(parent, name, norm)


def save_policy(path: Path, *, seed: int = 0) -> Path:
    """A plain transformers directory with a tiny random policy; a file stands in for the tokenizer."""
    tiny_model(seed=seed).save_pretrained(path)
    (path / "tokenizer.json").write_text('{"stands": "in"}', encoding="utf-8")
    (path / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    return path


def turn_row(group: str, sample: int, turn: int, prompt: Sequence[int], reply: Sequence[int], **changes: Any) -> Row:
    """One good row; log-probs -1 and advantage 1 unless said otherwise."""
    return {
        "group_id": group,
        "sample": sample,
        "turn": turn,
        "dialogue_id": f"{group}/{sample}",
        "segment": 0,
        "prompt_ids": list(prompt),
        "reply_ids": list(reply),
        "reply_logprobs": [-1.0] * len(reply),
        "finish_reason": "stop",
        "status": "ok",
        "advantage": 1.0,
        **changes,
    }


def random_rows(dialogues: int, *, seed: int = 0, turns: int = 4) -> list[Row]:
    """Ragged dialogues of 1 to ``turns`` turns in groups of two; some advantages null or 0, some second segments."""
    random = np.random.default_rng(seed)
    rows = []
    for dialogue in range(dialogues):
        count = int(random.integers(1, turns + 1))
        for turn in range(count):
            reply = random.integers(1, VOCABULARY, random.integers(1, 6)).tolist()
            advantage: float | None = float(random.normal())
            if turn > 0 and random.random() < 0.2:
                advantage = random.choice([None, 0.0])
            rows.append(
                turn_row(
                    f"g{dialogue // 2:03d}",
                    dialogue % 2,
                    turn,
                    random.integers(1, VOCABULARY, random.integers(1, 5)).tolist(),
                    reply,
                    segment=1 if turn >= 3 else 0,
                    reply_logprobs=(-2.5 + 0.5 * random.normal(size=len(reply))).tolist(),
                    advantage=advantage,
                )
            )
    return rows


def with_outcomes(rows: Sequence[Row], *, seed: int = 0) -> list[Row]:
    """``rows`` with an outcome in [0, 1] on each dialogue's last one; of about every fourth it is not known."""
    random = np.random.default_rng(seed)
    last = {(row["group_id"], row["sample"]): number for number, row in enumerate(rows)}
    outcomes = {number: float(random.random()) if random.random() < 0.75 else None for number in last.values()}
    return [{**row, "outcome": outcomes.get(number)} for number, row in enumerate(rows)]


def with_sampler(rows: Sequence[Row], model: Any, *, temperature: float = 1.0, noise: float = 0.0) -> list[Row]:
    """``rows`` with the log-probs that ``model`` gives its replies, plus ``noise`` times a normal number."""
    random = np.random.default_rng(1)
    context: dict[tuple[str, int, int], list[int]] = {}
    changed = []
    for row in rows:
        ids = context.setdefault((row["group_id"], row["sample"], row["segment"]), [])
        ids += row["prompt_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([ids + row["reply_ids"]])).logits[0].double() / temperature
        table = logits.log_softmax(-1)
        logprobs = [float(table[len(ids) + i - 1, token]) for i, token in enumerate(row["reply_ids"])]
        ids += row["reply_ids"]
        noisy = [min(value + noise * random.normal(), 0.0) for value in logprobs]
        changed.append({**row, "reply_logprobs": noisy})
    return changed


def write_advantages(path: Path, rows: Sequence[Mapping[str, Any]], **details: Any) -> Path:
    """``rows``, in order, as an advantage file whose lineage says how they were sampled.

    Written past the writer's own refusals: NaN may stand in it.
    """
    names = schema_for({name for row in rows for name in row} | {"advantage", "return", "judge_status"}).names
    schema = schema_for(names)
    columns = [pa.array([row.get(name) for row in rows], type=schema.field(name).type) for name in names]
    record = StageRecord("rollout", details={"sampling": SAMPLING, "logprobs_kind": "drawn", **details})
    path.parent.mkdir(parents=True, exist_ok=True)
    with TrajectoryWriter(path, schema) as writer:
        writer.write(pa.table(columns, schema=schema))
        writer.finish(Lineage((record,)))
    return path


def read_data(path: Path, config: UpdateConfig, limit: int = 256) -> TrainingData:
    """The file as training data for a model that takes ``limit`` tokens."""
    return read_training_data(TrajectoryFile.open(path), config, Limits(limit, config.overlong))


def reference_loss(
    model: Any, old_model: Any, rows: Sequence[Row], config: UpdateConfig, temperature: float = 1.0
) -> torch.Tensor:
    """The loss of one optimiser step over all of ``rows``, in the dtype of ``model``, with gradient."""
    turns = _turns(model, old_model, rows, temperature)
    tokens = [token for turn in turns for token in turn["tokens"]]
    for token in tokens:
        token["loss"] = _token_loss(token, turns, config)
    by_dialogue = [[t for t in tokens if t["dialogue"] == d] for d in dict.fromkeys(t["dialogue"] for t in tokens)]
    by_turn = [turn["tokens"] for turn in turns if turn["tokens"]]
    if config.aggregation == "turn":
        return _mean([_mean([t["loss"] for t in one]) for one in by_turn])
    if config.aggregation == "dialogue":
        return _mean([_mean([t["loss"] for t in one]) for one in by_dialogue])
    if config.aggregation == "dialogue-sum-constant":
        return sum(t["loss"] for t in tokens) / (len(by_dialogue) * config.dialogue_token_limit)
    return sum(t["loss"] for t in tokens) / len(tokens)


def _mean(values: Sequence[torch.Tensor]) -> torch.Tensor:
    return sum(values[1:], values[0]) / len(values)


def _turns(model: Any, old_model: Any, rows: Sequence[Row], temperature: float) -> list[dict[str, Any]]:
    turns = []
    for number, row in enumerate(rows):
        if row["advantage"] is None:
            continue
        same = lambda other, row=row: all(other[k] == row[k] for k in ("group_id", "sample", "segment"))  # noqa: E731
        before = [r for r in rows[:number] if same(r)]
        ids = [i for r in before for i in (*r["prompt_ids"], *r["reply_ids"])] + row["prompt_ids"]
        new, old = (_table(m, ids + row["reply_ids"], temperature) for m in (model, old_model))
        tokens = [
            {
                "logprob": new[len(ids) + i - 1, token],
                "old": old[len(ids) + i - 1, token].detach(),
                "entropy": -(new[len(ids) + i - 1].exp() * new[len(ids) + i - 1]).sum(),
                "sampler": row["reply_logprobs"][i],
                "advantage": row["advantage"],
                "turn": number,
                "dialogue": (row["group_id"], row["sample"]),
            }
            for i, token in enumerate(row["reply_ids"])
        ]
        turns.append({"tokens": tokens})
    return turns


def _table(model: Any, ids: list[int], temperature: float) -> torch.Tensor:
    return (model(torch.tensor([ids])).logits[0] / temperature).log_softmax(-1)


def _token_loss(token: dict[str, Any], turns: list[dict[str, Any]], config: UpdateConfig) -> torch.Tensor:
    advantage, logprob = token["advantage"], token["logprob"]
    old = torch.tensor(token["sampler"]) if config.old_logprobs == "sampler" else token["old"]
    weight = 1.0
    if config.old_logprobs == "recompute" and config.loss != "sft":
        weight = min(math.exp(token["old"].item() - token["sampler"]), config.importance_cap)
    low, high = config.clip
    ratio = (logprob - old).exp()
    if config.loss == "sft":
        loss = -logprob
    elif config.loss == "reinforce":
        loss = -advantage * logprob
    elif config.loss == "cispo":
        loss = -min(ratio.item(), 1 + high) * advantage * logprob
    elif config.loss == "gspo":
        level = config.gspo_level
        unit = [t for turn in turns for t in turn["tokens"] if t[level] == token[level]]
        shared = math.exp(sum(t["logprob"].item() - t["old"].item() for t in unit) / len(unit))
        surrogate = shared * (logprob - logprob.detach()).exp()
        loss = torch.max(-surrogate * advantage, -surrogate.clamp(1 - low, 1 + high) * advantage)
    else:
        loss = torch.max(-ratio * advantage, -ratio.clamp(1 - low, 1 + high) * advantage)
        if advantage < 0:
            loss = torch.min(loss, torch.tensor(-config.dual_clip * advantage, dtype=loss.dtype))
    return weight * loss - config.entropy_bonus * token["entropy"]


def gradients(model: Any, loss: Callable[[], torch.Tensor]) -> dict[str, torch.Tensor]:
    """Gradient of every parameter."""
    model.zero_grad()
    loss().backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
