"""Throughput and model FLOP utilisation of an update on one GPU, against ceilings measured in the same process.

    bash benchmarks/update_gpu.sh            # 0.6B, 1.7B and 4B shapes, 4k and 16k tokens, bf16
    python benchmarks/update_gpu.py --dry-run    # the same code on a CPU with a tiny shape: does it run?

Random Qwen3 weights of the published shapes; one optimiser step over dialogues that fill ``--tokens`` a forward pass,
by ``Learner`` as ``dialrl update`` calls it. Utilisation: (6 N + 6 L H S) FLOP a token read (N parameters without the
input table, L layers, H width of attention, S mean tokens a dialogue: causal attention, forward and backward;
recomputation is not counted), over the peak that the largest matrix product reaches here. A model that does not fit is
recorded as such. Not yet run on a GPU by the project: only dry.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from dialrl.model.packing import TokenSequence
from dialrl.update.config import UpdateConfig
from dialrl.update.data import TrainingData
from dialrl.update.learner import Learner
from dialrl.update.plan import plan_steps

RESULT = Path(__file__).parent / "results" / "update_gpu.json"
SHAPES = {
    "0.6B": {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16},
    "1.7B": {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16},
    "4B": {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32},
}
DRY_SHAPE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
VOCABULARY = 151_936


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def matmul_ceiling(device: str, size: int = 8192, repeats: int = 20) -> float:
    """FLOP a second of a bfloat16 matrix product, the best of three runs."""
    one, two = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    best = 0.0
    for _ in range(3):
        synchronize(device)
        started = time.perf_counter()
        for _ in range(repeats):
            one @ two
        synchronize(device)
        best = max(best, repeats * 2 * size**3 / (time.perf_counter() - started))
    return best


def copy_ceiling(device: str, size: int = 2**30, repeats: int = 20) -> float:
    """Bytes a second read and written by a copy in the device's memory."""
    source = torch.empty(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    synchronize(device)
    started = time.perf_counter()
    for _ in range(repeats):
        target.copy_(source)
    synchronize(device)
    return repeats * 2 * size / (time.perf_counter() - started)


def random_data(tokens: int) -> TrainingData:
    """Ragged dialogues of about 2,048 tokens in 8 turns, half of the tokens trained, ``tokens`` in all."""
    random = np.random.default_rng(0)
    lengths = []
    while sum(lengths) < tokens:
        lengths.append(min(int(random.integers(1024, 3072)), max(64, tokens - sum(lengths))))
    turns, sequences = [], []
    for number, length in enumerate(lengths):
        bounds = np.linspace(2, length, 17).astype(int)
        places = [np.arange(a, b) for a, b in zip(bounds[1::2], bounds[2::2], strict=True)]
        sequences.append(TokenSequence(random.integers(0, VOCABULARY, length), np.concatenate(places)))
        turns += [(number, turn, len(place)) for turn, place in enumerate(places)]
    counts = np.array([count for _, _, count in turns])
    return TrainingData(
        sequences=tuple(sequences),
        sequence_turns=np.arange(len(sequences) + 1) * 8,
        sequence_dialogue=np.arange(len(sequences)),
        turn_tokens=np.concatenate([[0], np.cumsum(counts)]),
        turn_dialogue=np.array([dialogue for dialogue, _, _ in turns]),
        turn_number=np.array([turn for _, turn, _ in turns]),
        turn_advantage=random.normal(size=len(turns)),
        dialogues=tuple(f"d/{number}" for number in range(len(sequences))),
        sampler_logprobs_T=np.full(int(counts.sum()), -12.0),
    )


def build_model(shape: dict[str, int], device: str, *, key_value_heads: int = 8, head_size: int = 128) -> Any:
    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen3ForCausalLM(
            Qwen3Config(
                **shape, num_key_value_heads=key_value_heads, head_dim=head_size, vocab_size=VOCABULARY,
                max_position_embeddings=32_768, tie_word_embeddings=True,
            )
        )  # fmt: skip
    return model.eval()


def flops_a_token(model: Any, data: TrainingData) -> float:
    config = model.config
    body = sum(p.numel() for name, p in model.named_parameters() if "embed_tokens" not in name)
    lengths = np.array([sequence.input_length for sequence in data.sequences])
    mean_length = float((lengths**2).sum() / lengths.sum())
    trained = data.trained_tokens / lengths.sum()
    head = VOCABULARY * config.hidden_size * trained  # the head runs at trained places only
    attention = config.num_hidden_layers * config.num_attention_heads * config.head_dim * mean_length
    return 6 * (body + head) + 6 * attention


def measure(model: Any, tokens: int, options: argparse.Namespace, ceiling: float) -> dict[str, Any]:
    device, data = model.device.type, random_data(4 * tokens)
    config = UpdateConfig(
        precision="bf16", micro_batch_tokens=tokens, old_logprobs="sampler", max_mismatch=1e9, learning_rate=1e-6,
        attention=options.attention, layout="packed",
    )  # fmt: skip
    learner = Learner(model, config)
    planned = plan_steps(data, config, step=0)
    list(learner.train(data, planned, 1e-6))  # warms kernels and allocator up
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    synchronize(device)
    started = time.perf_counter()
    for _ in range(options.steps):
        list(learner.train(data, planned, 1e-6))
    synchronize(device)
    seconds = (time.perf_counter() - started) / options.steps
    read = sum(sequence.input_length for sequence in data.sequences)
    rate = flops_a_token(model, data) * read / seconds
    return {
        "layout": learner.layout.sentence, "checkpointed": learner.checkpointed,
        "read_tokens_per_second": read / seconds, "trained_tokens_per_second": data.trained_tokens / seconds,
        "utilisation": rate / ceiling,
        "peak_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else None,
    }  # fmt: skip


def cells(options: argparse.Namespace, ceiling: float) -> Iterator[dict[str, Any]]:
    """One result a shape and size of a forward pass; a model that does not fit is one too."""
    for name in ["dry"] if options.dry_run else options.models:
        for tokens in [256] if options.dry_run else options.tokens:
            cell = {"model": name, "micro_batch_tokens": tokens}
            try:
                if options.dry_run:
                    model = build_model(DRY_SHAPE, "cpu", key_value_heads=1, head_size=16)
                else:
                    model = build_model(SHAPES[name], "cuda")
                yield {**cell, **measure(model, tokens, options, ceiling)}
            except torch.OutOfMemoryError as error:
                yield {**cell, "failed": str(error)[:200]}
            model = None  # before the next one is made
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--tokens", nargs="+", type=int, default=[4096, 16_384])
    parser.add_argument("--attention", default="auto", choices=["auto", "sdpa", "flex", "varlen"])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--dry-run", action="store_true", help="on a CPU, with a tiny shape; nothing is written")
    parser.add_argument("-o", "--output", type=Path, default=RESULT)
    options = parser.parse_args()
    if not options.dry_run and not torch.cuda.is_available():
        sys.exit("update_gpu.py measures on a CUDA device; none is available here (--dry-run needs none).")
    device, size = ("cpu", 256) if options.dry_run else ("cuda", 8192)
    ceiling = matmul_ceiling(device, size)
    content: dict[str, Any] = {
        "benchmark": "update_gpu", "device": "cpu" if options.dry_run else torch.cuda.get_device_name(),
        "torch": torch.__version__, "matmul_flops": ceiling,
        "copy_bytes_per_second": copy_ceiling(device, 2**20 if options.dry_run else 2**30), "results": [],
    }  # fmt: skip
    for result in cells(options, ceiling):
        content["results"].append(result)
        print(json.dumps(result), flush=True)
        if not options.dry_run:
            options.output.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
