"""Speed and memory of an update beside TRL's GRPOTrainer and two plain loops, on the same dialogues in one run.

    python benchmarks/update.py [--trl PYTHON] [--models tiny base] [--vocabularies 2000 32000 152000]

32 ragged dialogues of up to 8 turns, random tokens and random Qwen3 models, fp32 and bf16. Every side runs in a process
of its own, one after another, and makes one optimiser step over all dialogues:

    dialrl       ``Learner`` as ``dialrl update`` calls it, with its own choices
    trl          ``GRPOTrainer.train()`` on the stored dialogues through its ``rollout_func`` and ``env_mask``, one
                 dialogue a row; generation and rewards take no time
    plain        one unpadded dialogue at a time, the head at trained positions, nothing else
    trl_turns    TRL with one row a turn, the earlier turns as prompt, on the first ``--turn-dialogues`` only: slow

Figures: trained tokens a second of the step, loading excluded, and the growth of the process's peak memory from the
model loaded to the end of the step. On a busy machine ``--clock cpu --threads 1`` counts CPU seconds instead. The
result is written after every side and a second call goes on where the first ended: sides that are there are left.
After ``--minutes`` no side is begun; ``trl_turns`` come last. TRL is never a dependency: give a Python that has it
beside this project's packages (an environment of its own: ``pip install 'trl==1.16.*'``), or its sides are left out.
"""

import argparse
import itertools
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
SIDES = ("dialrl", "trl", "plain", "trl_turns")
SHAPES = {
    "tiny": {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 8, "num_attention_heads": 4,
             "num_key_value_heads": 2, "head_dim": 32},
    "base": {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12,
             "num_key_value_heads": 4, "head_dim": 64},
}  # fmt: skip
SYSTEM_TOKENS = 32
Clock = tuple[float, float]  # CPU and wall-clock seconds


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


def now() -> Clock:
    return time.process_time(), time.perf_counter()


def since(start: Clock) -> Clock:
    end = now()
    return end[0] - start[0], end[1] - start[1]


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run_dialrl(model: Any, talks: Any, bf16: bool) -> tuple[Clock, int]:
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
    started = now()
    list(learner.train(data, plan_steps(data, config, step=0), 1e-6))
    return since(started), data.trained_tokens


def run_plain(model: Any, talks: Any, bf16: bool) -> tuple[Clock, int]:
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    advantages = np.random.default_rng(1).normal(size=len(talks))
    total = sum(len(reply) for talk in talks for _, reply in talk)
    started = now()
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
    return since(started), total


def run_trl(model: Any, talks: Any, bf16: bool, *, by_turn: bool) -> tuple[Clock, int]:
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
    clock: dict[str, Clock] = {}

    class Timed(GRPOTrainer):  # type: ignore[misc]
        def training_step(self, *given: Any, **named: Any) -> Any:
            clock.setdefault("start", now())
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
    return since(clock["start"]), trained


def work(options: argparse.Namespace) -> None:
    """One side, in this process; the result is one JSON line."""
    import torch
    import transformers

    torch.set_num_threads(options.threads)
    model = build_model(options.models[0], options.vocabularies[0])
    talks = dialogues(options.dialogues, options.vocabularies[0], options.scale)
    talks = talks[: options.turn_dialogues] if options.side == "trl_turns" else talks
    before = peak_bytes()
    sides = {"dialrl": run_dialrl, "plain": run_plain}
    if options.side in sides:
        (processor, wall), tokens = sides[options.side](model, talks, options.bf16)
    else:
        (processor, wall), tokens = run_trl(model, talks, options.bf16, by_turn=options.side == "trl_turns")
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    if options.side.startswith("trl"):
        import trl

        versions["trl"] = trl.__version__
    print("RESULT " + json.dumps({
        "cpu_seconds": processor, "wall_seconds": wall, "trained_tokens": tokens,
        "tokens_per_second": tokens / (processor if options.clock == "cpu" else wall),
        "peak_growth_bytes": peak_bytes() - before, "peak_bytes": peak_bytes(), "parameters": model.num_parameters(),
        "read_tokens": sum(len(p) + len(r) for talk in talks for p, r in talk), "versions": versions,
    }))  # fmt: skip


def measure(side: str, cell: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """One side of one cell in a process of its own; what it printed, or why there is nothing."""
    python = options.trl if side.startswith("trl") else sys.executable
    command = [python, __file__, "--side", side, "--models", cell["model"], "--vocabularies", str(cell["vocabulary"])]
    for name in SETTINGS:
        command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    command += ["--bf16"] if cell["precision"] == "bf16" else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=options.side_seconds)
    except subprocess.TimeoutExpired:
        return {"failed": f"over {options.side_seconds} seconds"}
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return dict(json.loads(line.removeprefix("RESULT ")))
    return {"failed": done.stderr[-500:]}


def ratios(sides: dict[str, dict[str, Any]]) -> dict[str, float]:
    """dialrl beside each other side: speed, and peak memory where both had the same dialogues."""
    found = {}
    done = {name: run for name, run in sides.items() if "failed" not in run}
    for name in SIDES[1:]:
        if "dialrl" in done and name in done:
            own, other = done["dialrl"], done[name]
            found[f"speed_to_{name}"] = round(own["tokens_per_second"] / other["tokens_per_second"], 2)
            if name != "trl_turns":
                found[f"memory_to_{name}"] = round(own["peak_growth_bytes"] / other["peak_growth_bytes"], 2)
    return found


SETTINGS = ("dialogues", "scale", "threads", "clock", "turn_dialogues")


def opened(options: argparse.Namespace) -> dict[str, Any]:
    """The result so far, if it was made with the same settings; else a new one."""
    settings = {name: getattr(options, name) for name in SETTINGS}
    if options.output.is_file() and not options.overwrite:
        content: dict[str, Any] = json.loads(options.output.read_text(encoding="utf-8"))
        if content.get("settings") == settings:
            return content
        sys.exit(f"{options.output} was made with other settings: {content.get('settings')}. Use --overwrite or -o.")
    return {"benchmark": "update", "settings": settings, "machine": platform.machine(), "results": []}


def cell_of(content: dict[str, Any], shape: str, vocabulary: int, precision: str) -> dict[str, Any]:
    """The cell of the result, made if it is not there."""
    wanted = {"model": shape, "vocabulary": vocabulary, "precision": precision}
    for cell in content["results"]:
        if {name: cell[name] for name in wanted} == wanted:
            found: dict[str, Any] = cell
            return found
    made: dict[str, Any] = {**wanted, "sides": {}, "ratios": {}}
    content["results"].append(made)
    return made


def work_left(content: dict[str, Any], options: argparse.Namespace) -> list[tuple[dict[str, Any], str]]:
    """Cells and sides that have no result yet, in the order to run them; the slowest side last."""
    sides = [side for side in options.sides if options.trl or not side.startswith("trl")]
    cells = [
        cell_of(content, *names)
        for names in itertools.product(options.models, options.vocabularies, options.precisions)
    ]
    fast = [(cell, side) for cell in cells for side in sides if side != "trl_turns"]
    slow = [(cell, "trl_turns") for cell in cells if "trl_turns" in sides]
    return [(cell, side) for cell, side in fast + slow if side not in cell["sides"]]


def run_matrix(options: argparse.Namespace) -> None:
    content, end = opened(options), time.monotonic() + 60 * options.minutes
    left = work_left(content, options)
    for number, (cell, side) in enumerate(left):
        if time.monotonic() > end:
            print(f"{len(left) - number} sides are left after {options.minutes} minutes; call again to go on.")
            return
        cell["sides"][side] = measure(side, cell, options)
        cell["ratios"] = ratios(cell["sides"])
        options.output.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        told = {name: round(value) for name, value in cell["sides"][side].items() if isinstance(value, float | int)}
        print(cell["model"], cell["vocabulary"], cell["precision"], side, told, cell["ratios"], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["tiny", "base"], choices=list(SHAPES))
    parser.add_argument("--vocabularies", nargs="+", type=int, default=[2000, 32_000, 152_000])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument("--dialogues", type=int, default=32)
    parser.add_argument("--turn-dialogues", type=int, default=4, help="dialogues of the side trl_turns")
    parser.add_argument("--scale", type=float, default=0.5, help="length of messages and replies")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--minutes", type=float, default=24, help="no side is begun after so many")
    parser.add_argument("--side-seconds", type=float, default=400, help="a side that takes longer is ended")
    parser.add_argument("--trl", default=os.environ.get("TRL_PYTHON"), help="Python that has TRL")
    parser.add_argument("-o", "--output", type=Path, default=RESULT)
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--bf16", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        work(options)
    else:
        run_matrix(options)


if __name__ == "__main__":
    main()
