"""Do the exports load where they are meant to? TRL's own trainers take a step on them, verl's own data set reads them.

    pip install trl verl ray            (beside dialrl with the extra train; dialrl imports neither)
    python benchmarks/export_loads.py [-o benchmarks/results/export_loads.json]

A handful of invented dialogues with rewards, a random model of one layer, one optimisation step each: it is about
formats, not about learning. A peer that is not installed is named as skipped. Exit code 1 if one refuses a file.
"""

import argparse
import importlib.util
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from result_file import show

from dialrl.trajectory.exporters.config import Target
from dialrl.trajectory.exporters.stage import export
from dialrl.trajectory.lineage import Lineage, StageRecord
from dialrl.trajectory.rows import rows_to_table
from dialrl.trajectory.writer import TrajectoryWriter

REPLIES = ("That sounds heavy.", "What happened then?", "You should sleep more.", "I am here.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = {"versions": _versions(), "loads": _check(Path(folder))}
    show(result, arguments.output)
    sys.exit(int(any(found["status"] == "refused" for found in result["loads"].values())))


def _check(folder: Path) -> dict[str, dict[str, Any]]:
    source = _dialogues(folder / "turns.parquet")
    model = _tiny_model(folder / "model")
    checks: dict[str, tuple[Target, str, Callable[[Path, Path], Any]]] = {
        "trl SFTTrainer on sft": ("sft", "trl", _sft_step),
        "trl SFTTrainer on trl": ("trl", "trl", _sft_step),
        "trl DPOTrainer on dpo": ("dpo", "trl", _dpo_step),
        "verl RLHFDataset on verl": ("verl", "verl", _verl_prompts),
    }
    found = {}
    for name, (to, peer, load) in checks.items():
        file = folder / f"{to}.{'parquet' if to == 'verl' else 'jsonl'}"
        examples = export(source, file, to, overwrite=True).counts["examples"]
        found[name] = {"examples": examples, **_outcome(peer, load, file, model)}
    return found


def _outcome(peer: str, load: Callable[[Path, Path], Any], file: Path, model: Path) -> dict[str, Any]:
    if importlib.util.find_spec(peer) is None:
        return {"status": "skipped", "why": f"{peer} is not installed"}
    try:
        return {"status": "loaded", "saw": load(file, model)}
    except Exception as error:  # noqa: BLE001 - whatever the peer raises is the finding
        return {"status": "refused", "why": f"{type(error).__name__}: {error}"}


def _sft_step(file: Path, model: Path) -> Any:
    from trl import SFTConfig, SFTTrainer

    trainer = SFTTrainer(str(model), SFTConfig(**_step(file.parent)), train_dataset=_json(file))
    return {"rows": len(trainer.train_dataset), "loss": trainer.train().training_loss}


def _dpo_step(file: Path, model: Path) -> Any:
    from trl import DPOConfig, DPOTrainer

    trainer = DPOTrainer(str(model), args=DPOConfig(**_step(file.parent)), train_dataset=_json(file))
    return {"rows": len(trainer.train_dataset), "loss": trainer.train().training_loss}


def _verl_prompts(file: Path, model: Path) -> Any:
    from omegaconf import OmegaConf
    from transformers import AutoTokenizer
    from verl.utils.dataset.rl_dataset import RLHFDataset

    config = OmegaConf.create({"cache_dir": str(file.parent), "max_prompt_length": 512})
    data = RLHFDataset(str(file), AutoTokenizer.from_pretrained(model), config)
    first = data[0]
    return {"rows": len(data), "prompt": first["raw_prompt"], "ground_truth": first["reward_model"]["ground_truth"]}


def _json(file: Path) -> Any:
    from datasets import load_dataset

    return load_dataset("json", data_files=str(file), split="train", cache_dir=str(file.parent / "cache"))


def _step(folder: Path) -> dict[str, Any]:
    """Settings of one step on the CPU, nothing kept."""
    return {
        "output_dir": str(folder / "out"),
        "max_steps": 1,
        "per_device_train_batch_size": 2,
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
    }


def _dialogues(path: Path) -> Path:
    """Two groups of two dialogues of two turns, every turn with a reward and a return."""
    rows = [
        {
            "group_id": group, "sample": sample, "turn": turn, "scenario_id": group, "environment": "invented",
            "messages": [{"role": "user", "name": None, "content": "I could not sleep." if turn == 0 else "Not much."}],
            "reply": REPLIES[2 * sample + turn], "status": "ok", "end_reason": "turn_limit" if turn else None,
            "reward": float(1 - sample), "return": float((1 - sample) * (2 - turn)),
        }
        for group in ("a", "b") for sample in (0, 1) for turn in (0, 1)
    ]  # fmt: skip
    table = rows_to_table(rows)
    with TrajectoryWriter(path, table.schema) as writer:
        writer.write(table)
        writer.finish(Lineage((StageRecord("rollout"),)))
    return path


def _tiny_model(folder: Path) -> Path:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from dialrl.environment.demo.base_tokenizer import build_tokenizer

    tokenizer = build_tokenizer()
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes = {**shape, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": len(tokenizer)}
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    Qwen3ForCausalLM(Qwen3Config(**sizes, **ids)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _versions() -> dict[str, str]:
    found = {}
    for name in ("dialrl", "trl", "datasets", "verl", "transformers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


if __name__ == "__main__":
    main()
