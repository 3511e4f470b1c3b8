"""Speed and memory of an update beside TRL's GRPOTrainer and two plain loops, on the same dialogues in one run.

    python benchmarks/update.py [--models tiny base] [--vocabularies 2000 32000 152000] [--repeats 2] [--trl PYTHON]

32 ragged dialogues of up to 8 turns, random tokens and random Qwen3 models, fp32 and bf16. Every side runs in a process
of its own, one after another and in turns, and makes one optimiser step over all dialogues:

    dialrl       ``Learner`` as ``dialrl update`` calls it, with its own choices
    trl          ``GRPOTrainer.train()`` on the stored dialogues through its ``rollout_func`` and ``env_mask``, one
                 dialogue a row; generation and rewards take no time
    trl_turns    the same with one row a turn, the earlier turns as prompt
    plain        one unpadded dialogue at a time, the head at trained positions, nothing else

Figures: trained tokens a CPU second (of the step, loading excluded; on one thread, so that what else runs on the
machine does not count), and the growth of the process's peak memory from the
model loaded to the end of the step. TRL is never a dependency: give a Python that has it beside this project's packages
(a virtual environment of its own: ``pip install 'trl==1.16.*'``), or its sides are left out.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

RESULT = Path(__file__).parent / "results" / "update.json"
SIDES = ("dialrl", "plain", "trl", "trl_turns")
SHAPES = {
    "tiny": {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 8, "num_attention_heads": 4,
             "num_key_value_heads": 2, "head_dim": 32},
    "base": {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12,
             "num_key_value_heads": 4, "head_dim": 64},
}  # fmt: skip
SYSTEM_TOKENS = 32


def dialogues(count: int, vocabulary: int, scale: float) -> list[list[tuple[list[int], list[int]]]]:
    """Turns of (new prompt ids, reply ids); every fourth dialogue is short."""
    random = np.random.default_rng(0)
    made = []
    for number in range(count):
        turns = []
        for turn in range(8 if number % 4 else int(random.integers(2, 8))):
            lengths = (random.integers(8, 48, 2) * scale).astype(int) + 2
            prompt = int(lengths[0]) + (SYSTEM_TOKENS if turn == 0 else 0)
            turns.append(
                (random.integers(5, vocabulary, prompt).tolist(), random.integers(5, vocabulary, lengths[1]).tolist())
            )
        made.append(turns)
    return made


def build_model(shape: str, vocabulary: int) -> Any:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        **SHAPES[shape], vocab_size=vocabulary, max_position_embeddings=8192, tie_word_embeddings=True,
        eos_token_id=1, pad_token_id=0, bos_token_id=2,
    )  # fmt: skip
    return Qwen3ForCausalLM(config).eval()


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run_dialrl(model: Any, talks: Any, bf16: bool) -> tuple[float, int]:
    from dialrl.update.config import UpdateConfig
    from dialrl.update.data import training_data
    from dialrl.update.learner import Learner
    from dialrl.update.plan import plan_steps
    from dialrl.update.sequences import Limits, build_sequences
    from dialrl.update.turns import Turn

    config = UpdateConfig(
        old_logprobs="sampler", max_mismatch=1e9, precision="bf16" if bf16 else "fp32", micro_batch_tokens=1024
    )
    advantages = np.random.default_rng(1).normal(size=len(talks))
    sequences = []
    for number, talk in enumerate(talks):
        turns = [
            Turn(
                f"d/{number}",
                k,
                0,
                np.array(p),
                np.array(r),
                np.full(len(r), -8.0),
                float(advantages[number]),
                False,
                True,
                None,
            )
            for k, (p, r) in enumerate(talk)
        ]
        sequences += build_sequences(turns, lambda _: True, Limits(8192))
    data = training_data(sequences)
    learner = Learner(model, config)
    started = time.process_time()
    list(learner.train(data, plan_steps(data, config, step=0), 1e-6))
    return time.process_time() - started, data.trained_tokens


def run_plain(model: Any, talks: Any, bf16: bool) -> tuple[float, int]:
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    advantages = np.random.default_rng(1).normal(size=len(talks))
    total = sum(len(reply) for talk in talks for _, reply in talk)
    started = time.process_time()
    for talk, advantage in zip(talks, advantages, strict=True):
        ids = [i for prompt, reply in talk for i in (*prompt, *reply)]
        places, at = [], 0
        for prompt, reply in talk:
            at += len(prompt)
            places += range(at, at + len(reply))
            at += len(reply)
        given, where = torch.tensor([ids]), torch.tensor(places)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            hidden = model.get_decoder()(input_ids=given, use_cache=False).last_hidden_state[0, where - 1]
            table = model.get_output_embeddings()(hidden).float().log_softmax(-1)
        chosen = table.gather(1, given[0, where, None])[:, 0]
        ratio = (chosen - chosen.detach()).exp()
        (-(ratio * float(advantage)).sum() / total).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return time.process_time() - started, total


def run_trl(model: Any, talks: Any, bf16: bool, *, by_turn: bool) -> tuple[float, int]:
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    rows = []
    for talk in talks:
        context: list[int] = []
        row: tuple[list[int], list[int], list[int]] = ([], [], [])
        for number, (prompt, reply) in enumerate(talk):
            context = context + prompt
            if by_turn:
                rows.append((context, reply, [1] * len(reply)))
            elif number == 0:
                row = (prompt, list(reply), [1] * len(reply))
            else:
                row = (row[0], row[1] + prompt + reply, row[2] + [0] * len(prompt) + [1] * len(reply))
            context = context + reply
        if not by_turn:
            rows.append(row)
    while len(rows) % 4:  # TRL wants whole groups and whole micro-batches
        rows.pop()
    count, trained = len(rows), sum(sum(row[2]) for row in rows)
    words = {"<pad>": 0, "<eos>": 1, "<bos>": 2, "<unk>": 3}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<unk>")), pad_token="<pad>", eos_token="<eos>"
    )

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        return {
            "prompt_ids": [row[0] for row in rows],
            "completion_ids": [row[1] for row in rows],
            "logprobs": [[-8.0] * len(row[1]) for row in rows],
            "env_mask": [row[2] for row in rows],
        }

    random = np.random.default_rng(1)
    clock: dict[str, float] = {}

    class Timed(GRPOTrainer):  # type: ignore[misc]
        def training_step(self, *given: Any, **named: Any) -> Any:
            clock.setdefault("start", time.process_time())
            return super().training_step(*given, **named)

    with tempfile.TemporaryDirectory() as folder:
        arguments = GRPOConfig(
            output_dir=folder, per_device_train_batch_size=4, gradient_accumulation_steps=count // 4, num_generations=4,
            max_steps=1, report_to=[], save_strategy="no", learning_rate=1e-6, beta=0.0, bf16=bf16, use_cpu=True,
            max_completion_length=max(len(row[1]) for row in rows), logging_steps=1, disable_tqdm=True,
            gradient_checkpointing=False,
        )  # fmt: skip
        trainer = Timed(
            model=model, args=arguments, processing_class=tokenizer, rollout_func=rollout,
            train_dataset=Dataset.from_dict({"prompt": ["x"] * count}),
            reward_funcs=lambda completions, **_: random.normal(size=len(completions)).tolist(),
        )  # fmt: skip
        trainer.train()
    return time.process_time() - clock["start"], trained


def work(options: argparse.Namespace) -> None:
    """One side, in this process; the result is one JSON line."""
    import torch
    import transformers

    torch.set_num_threads(options.threads)
    model = build_model(options.models[0], options.vocabularies[0])
    talks = dialogues(options.dialogues, options.vocabularies[0], options.scale)
    before = peak_bytes()
    sides = {"dialrl": run_dialrl, "plain": run_plain}
    if options.side in sides:
        seconds, tokens = sides[options.side](model, talks, options.bf16)
    else:
        seconds, tokens = run_trl(model, talks, options.bf16, by_turn=options.side == "trl_turns")
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    if options.side.startswith("trl"):
        import trl

        versions["trl"] = trl.__version__
    print("RESULT " + json.dumps({
        "seconds": seconds, "trained_tokens": tokens, "tokens_per_second": tokens / seconds,
        "peak_growth_bytes": peak_bytes() - before, "peak_bytes": peak_bytes(), "parameters": model.num_parameters(),
        "read_tokens": sum(len(p) + len(r) for talk in talks for p, r in talk), "versions": versions,
    }))  # fmt: skip


def measure(side: str, shape: str, vocabulary: int, bf16: bool, options: argparse.Namespace) -> dict[str, Any] | None:
    python = options.trl if side.startswith("trl") else sys.executable
    if python is None:
        return None
    command = [python, __file__, "--side", side, "--models", shape, "--vocabularies", str(vocabulary)]
    command += ["--threads", str(options.threads), "--dialogues", str(options.dialogues), "--scale", str(options.scale)]
    done = subprocess.run([*command, *(["--bf16"] if bf16 else [])], capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return dict(json.loads(line.removeprefix("RESULT ")))
    print(f"{side} {shape} {vocabulary} bf16={bf16} failed: {done.stderr[-1500:]}", file=sys.stderr)
    return None


def best(runs: list[dict[str, Any]]) -> dict[str, Any]:
    fastest = max(runs, key=lambda run: run["tokens_per_second"])
    return {**fastest, "peak_growth_bytes": min(run["peak_growth_bytes"] for run in runs), "runs": len(runs)}


def ratios(sides: dict[str, dict[str, Any]]) -> dict[str, float]:
    found = {}
    own = sides.get("dialrl")
    for name in ("plain", "trl", "trl_turns"):
        if own and name in sides:
            found[f"speed_to_{name}"] = round(own["tokens_per_second"] / sides[name]["tokens_per_second"], 2)
            found[f"memory_to_{name}"] = round(own["peak_growth_bytes"] / sides[name]["peak_growth_bytes"], 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["tiny", "base"], choices=list(SHAPES))
    parser.add_argument("--vocabularies", nargs="+", type=int, default=[2000, 32_000, 152_000])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument("--dialogues", type=int, default=32)
    parser.add_argument("--scale", type=float, default=1.0, help="length of messages and replies")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--trl", default=os.environ.get("TRL_PYTHON"), help="Python that has TRL")
    parser.add_argument("-o", "--output", type=Path, default=RESULT)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--bf16", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        work(options)
        return
    results = []
    for shape in options.models:
        for vocabulary in options.vocabularies:
            for precision in options.precisions:
                runs: dict[str, list[dict[str, Any]]] = {side: [] for side in options.sides}
                for _ in range(options.repeats):
                    for side in options.sides:
                        run = measure(side, shape, vocabulary, precision == "bf16", options)
                        runs[side] += [] if run is None else [run]
                sides = {side: best(found) for side, found in runs.items() if found}
                entry = {
                    "model": shape,
                    "vocabulary": vocabulary,
                    "precision": precision,
                    "sides": sides,
                    "ratios": ratios(sides),
                }
                results.append(entry)
                speeds = {side: round(run["tokens_per_second"]) for side, run in sides.items()}
                growth = {side: round(run["peak_growth_bytes"] / 1e9, 2) for side, run in sides.items()}
                print(shape, vocabulary, precision, speeds, growth, entry["ratios"], flush=True)
                content = {
                    "benchmark": "update", "dialogues": options.dialogues, "scale": options.scale,
                    "threads": options.threads, "repeats": options.repeats, "machine": platform.machine(),
                    "results": results,
                }  # fmt: skip
                options.output.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
