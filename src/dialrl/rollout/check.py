"""What cannot work in a rollout, found before a model loads. Not here: what training asks beyond (``dialrl.train``)."""

from importlib.util import find_spec

from dialrl.engine import engine_factory
from dialrl.engine.vllm_settings import vllm_settings
from dialrl.environment.registry import open_environment
from dialrl.errors import UsageError, missing_extra
from dialrl.judge.files import check_judge
from dialrl.rollout.config import RolloutConfig
from dialrl.rollout.plan import no_scenarios


def check_rollout(config: RolloutConfig) -> None:
    """Raise UsageError for names, options and a split that cannot work; nothing of this machine is asked."""
    engine_factory(config.engine)
    if config.engine == "vllm":
        vllm_settings(config.engine_options)
    if config.grading == "live":
        check_judge(config.judge, config.judge_options)
    if not open_environment(config.environment, config.environment_options).scenarios(config.split):
        raise UsageError(no_scenarios(config.environment, config.split, config.environment_options))


def check_engine_here(config: RolloutConfig) -> None:
    """Raise MissingExtraError where the engine needs what this machine has not."""
    if config.engine == "hf" and find_spec("torch") is None:
        raise missing_extra("train", "torch")
    if config.engine != "vllm":
        return
    settings = vllm_settings(config.engine_options)
    if settings.mode == "in-process":
        if find_spec("vllm") is None:
            raise missing_extra("vllm", "vllm")
        return
    from dialrl.engine.vllm_server import check_interpreter

    check_interpreter(settings)
