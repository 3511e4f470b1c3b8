"""Rollouts behind an evaluation: the dialogues lie beside the results, so that they can be read and gone on with.

Not here: which environment, and scores.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dialrl.endpoint.settings import CallsConfig
from dialrl.evaluate.asking_config import AskingConfig
from dialrl.rollout.config import RolloutConfig

WHY = "the column 'error' of the dialogues beside it says why (dialrl inspect), --overwrite holds all of them again"


@contextmanager
def dialogues_place(output: Path | None) -> Iterator[Path]:
    """Where the dialogues of an evaluation go: ``items.dialogues.parquet`` beside ``items.parquet``.

    Without an output they go when the evaluation is over.
    """
    if output is not None:
        yield output.with_name(f"{output.stem}.dialogues.parquet")
        return
    with TemporaryDirectory(prefix="dialrl-") as folder:
        yield Path(folder) / "dialogues.parquet"


def rollout_of(config: AskingConfig, environment: str, options: Mapping[str, Any], **more: Any) -> RolloutConfig:
    """The rollout that ``config`` asks for, in ``environment``; failures are counted by the evaluation."""
    calls = {name: getattr(config, name) for name in CallsConfig.model_fields if name != "endpoints"}
    return RolloutConfig(
        environment=environment,
        environment_options=dict(options),
        engine=config.engine or "hf",
        engine_options=config.engine_options,
        template_options=config.template_options,
        temperature=1.0 if config.temperature is None else config.temperature,
        top_p=config.top_p,
        max_reply_tokens=config.max_reply_tokens,
        block_dialogues=config.block_dialogues,
        device=config.device,
        seed=config.sampling_seed,
        call_timeout_seconds=config.call_timeout_seconds,
        dialogues_in_flight=config.concurrency,
        max_failed=1.0,
        endpoints=config.reached,
        **calls,
        **more,
    )
