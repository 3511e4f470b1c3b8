"""What the doctor examines, and what of this machine it needs: from a pipeline, a policy, endpoints. Loads nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dialrl.config import validated
from dialrl.endpoint.settings import EndpointSettings, endpoint_for
from dialrl.train.config import PipelineConfig

POLICY = "policy"
_TASKS = {"judge": "grades", "director": "tools"}


@dataclass(frozen=True)
class Role:
    """A model behind an endpoint. ``model`` is None where only the endpoint was named.

    ``task`` is what the role needs beyond text: ``ids`` (and log-probs), ``grades`` (JSON by schema), ``tools``.
    """

    name: str
    model: str | None
    endpoint: EndpointSettings
    task: str | None = None
    extra: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Subject:
    """``policy``: the one given, else the pipeline's. ``output``: where files would go."""

    pipeline: PipelineConfig | None = None
    policy: str | None = None
    endpoints: tuple[str, ...] = ()
    model: str | None = None
    output: Path = Path()
    weights: bool = True
    chosen_engine: str | None = None
    given_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def examined_policy(self) -> str | None:
        return self.policy or (self.pipeline.policy if self.pipeline else None)

    @property
    def engine(self) -> str:
        return self.chosen_engine or (self.pipeline.rollout.engine if self.pipeline else "hf")

    @property
    def device(self) -> str:
        return self.pipeline.rollout.device if self.pipeline else "cpu"

    @property
    def template_options(self) -> Mapping[str, Any]:
        """Variables of the chat template: the pipeline's, those given on top."""
        return {**(self.pipeline.rollout.template_options if self.pipeline else {}), **self.given_options}

    @property
    def needs_training(self) -> bool:
        """Whether torch and transformers are needed: by the update of a pipeline, or to look into a policy."""
        return self.pipeline is not None or self.policy is not None

    def needs_extra(self, extra: str) -> bool:
        """Whether what was asked for cannot work without the optional dependencies ``extra``."""
        pipeline = self.pipeline
        if extra == "train":
            return self.needs_training
        if extra == "openai":
            return bool(self.roles())
        if pipeline is None:
            return False
        retriever = pipeline.rollout.environment_options.get("retriever")
        return {
            "peft": pipeline.update.lora_rank is not None,
            "search": pipeline.rollout.environment == "search" and retriever == "bm25",
            str(pipeline.train.track): True,
        }.get(extra, False)

    def roles(self) -> list[Role]:
        """The models that are reached over HTTP, each once."""
        named = [validated(EndpointSettings, {"base_urls": [url]}, where="--endpoint") for url in self.endpoints]
        given = [Role(endpoint.base_urls[0], self.model, endpoint, "ids") for endpoint in named]
        return given + (list(_pipeline_roles(self.pipeline, self.examined_policy)) if self.pipeline else [])


def _pipeline_roles(pipeline: PipelineConfig, policy: str | None) -> Iterator[Role]:
    rollout, endpoints = pipeline.rollout, pipeline.rollout.endpoints
    if rollout.engine == "openai":
        model = str(rollout.engine_options.get("model", policy))
        yield Role(POLICY, model, endpoint_for(endpoints, POLICY), "ids")
    for name in ("actor", "director"):
        settings = rollout.environment_options.get(name)
        if rollout.environment == "support" and isinstance(settings, Mapping):
            yield _role(name, settings, endpoint_for(endpoints, name))
    live = rollout.grading == "live"
    judge = (rollout.judge, rollout.judge_options) if live else (pipeline.judge.judge, pipeline.judge.judge_options)
    if judge[0] == "rubric":
        reached = endpoints if live else pipeline.judge.endpoints
        members = [judge[1], *judge[1].get("panel", ())]
        for number, member in enumerate(members):
            endpoint = endpoint_for(reached, str(member.get("endpoint", "judge")))
            yield _role("judge", member, endpoint, suffix=f" {number + 1}" if len(members) > 1 else "")


def _role(name: str, settings: Mapping[str, Any], endpoint: EndpointSettings, *, suffix: str = "") -> Role:
    return Role(name + suffix, str(settings.get("model")), endpoint, _TASKS.get(name), settings.get("extra"))
