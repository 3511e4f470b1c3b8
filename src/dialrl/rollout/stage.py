"""``dialrl rollout``: a policy talks with an environment; the dialogues become a trajectory file.

Works in fixed blocks of dialogues, keeps each finished block, and joins them at the end, so a killed rollout continues
and equals the unbroken one. Not here: a dialogue (``dialogue``), which dialogues there are (``plan``).
"""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dialrl.concurrency import run_async
from dialrl.config import differing_keys
from dialrl.endpoint.calls import calls_of, connect
from dialrl.engine.base import Engine, SamplingSettings
from dialrl.engine.serving.opening import serve_named
from dialrl.environment.base import Environment
from dialrl.environment.registry import open_environment
from dialrl.errors import FailureThresholdError, UsageError
from dialrl.judge.grading import JUDGE_COLUMNS
from dialrl.judge.registry import open_judge
from dialrl.model.context import History
from dialrl.model.probe import TemplateProbe, probe_template
from dialrl.model.template import ChatTemplate
from dialrl.progress import SILENT, Progress
from dialrl.rollout.block import run_block
from dialrl.rollout.broken import leave_out_broken_groups
from dialrl.rollout.config import RolloutConfig
from dialrl.rollout.degenerate import degenerate_groups
from dialrl.rollout.dialogue import LiveGrading, Row, Setting
from dialrl.rollout.plan import DialoguePlan, Group, blocks, draw_groups, plan_dialogues
from dialrl.rollout.report import rollout_warnings, tally
from dialrl.state.rubric import load_rubric
from dialrl.summary import StageSummary
from dialrl.trajectory.lineage import (
    InputFile,
    Lineage,
    StageRecord,
    complete_run_file,
    package_versions,
    write_run_file,
)
from dialrl.trajectory.parts import Parts, discard_parts
from dialrl.trajectory.reader import TrajectoryFile
from dialrl.trajectory.rows import rows_to_table
from dialrl.trajectory.schema import COLUMNS, KEYS

ROLLOUT_COLUMNS = tuple(name for name, column in COLUMNS.items() if column.stage == "rollout")


@dataclass(frozen=True)
class Policy:
    """What a rollout needs of a policy: an engine that samples from it, its template, and whose weights they are."""

    engine: Engine
    template: ChatTemplate | None
    digest: str
    step: int = 0


def roll_out(
    policy: Policy,
    output: Path,
    config: RolloutConfig,
    *,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress = SILENT,
) -> StageSummary:
    """Roll out ``config.groups`` groups with ``policy`` into the trajectory file ``output``.

    With ``resume`` a complete output of the same settings is left as it is, an unfinished one is continued. Raises
    UsageError for settings that cannot work, EngineError when the engine breaks, FailureThresholdError (after
    writing) when more than ``config.max_failed`` of the dialogues failed.
    """
    return Rollout(policy, output, config, progress).run(overwrite=overwrite, resume=resume)


class Rollout:
    """One call of ``roll_out``."""

    def __init__(self, policy: Policy, output: Path, config: RolloutConfig, progress: Progress) -> None:
        self.policy, self.output, self.config, self.progress = policy, output, config, progress
        self.environment: Environment = open_environment(config.environment, config.environment_options)
        self.probe = _probe(policy)
        self.setting = self._setting()
        self.sampling = SamplingSettings(
            temperature=config.temperature,
            top_p=config.top_p,
            top_k=config.top_k,
            min_p=config.min_p,
            max_reply_tokens=config.max_reply_tokens,
            context_limit_tokens=self.setting.context_limit_tokens,
        )

    def run(self, *, overwrite: bool, resume: bool) -> StageSummary:
        began = time.monotonic()
        identity = {"options": self.config.semantic_values(), "policy": self.policy.digest, "texts": self._texts()}
        if resume and self.output.exists() and (done := self._already_there(identity, overwrite=overwrite)):
            return done
        self.parts = Parts(self.output, identity, overwrite=overwrite, resume=resume)
        serve_named(self.config.endpoints, device=self.config.device)
        self.calls = calls_of(self.config, self.parts.journal_path)
        judge = self.setting.grading.judge if self.setting.grading else None
        connect(self.calls, self.environment, self.policy.engine, judge)
        kept = self._roll_all()
        summary = self._finish(kept)
        tokens = int(summary.counts["reply_tokens"])
        seconds = time.monotonic() - began
        rate = round(tokens / max(seconds, 1e-9), 1)
        write_run_file(self.output, seconds=seconds, reply_tokens_per_second=rate, calls=self.calls.ledger.figures())
        self._check_failures(summary.counts)
        return summary

    def _roll_all(self) -> list[int]:
        """Rolls every group out, replaces degenerate ones; numbers of the blocks that make the output."""
        config = self.config
        groups = draw_groups(self.environment.scenarios(config.split), config, extra=config.resample_degenerate)
        wanted, spare = groups[: config.groups], groups[config.groups :]
        self.dropped: set[str] = set()
        self.progress.start("rollout", config.groups * config.samples, "dialogues")
        numbers = self._roll(wanted, first_block=0)
        fresh = wanted
        while spare and (bad := degenerate_groups(map(self.parts.read, numbers), {g.group_id for g in fresh})):
            fresh, spare = spare[: len(bad)], spare[len(bad) :]
            self.dropped |= set(sorted(bad)[: len(fresh)])
            numbers += self._roll(fresh, first_block=len(numbers))
        return numbers

    def _roll(self, groups: Sequence[Group], *, first_block: int) -> list[int]:
        streams = self.policy.engine.capabilities.schedule == "stream"
        size = self.config.samples if streams else self.config.block_dialogues
        plans = blocks(plan_dialogues(groups, self.config.samples), size)
        numbers = list(range(first_block, first_block + len(plans)))
        if streams:
            run_async(self._roll_side_by_side(dict(zip(numbers, plans, strict=True))))
            return numbers
        for number, block in zip(numbers, plans, strict=True):
            run_async(self._roll_alone(number, block))
        return numbers

    async def _roll_side_by_side(self, plans: Mapping[int, Sequence[DialoguePlan]]) -> None:
        """No barrier between blocks: a stream engine is kept full. Blocks are groups here, kept as they finish."""
        gate = asyncio.Semaphore(self.config.dialogues_in_flight)
        async with self.calls:
            await asyncio.gather(*(self._roll_block(number, block, gate) for number, block in plans.items()))

    async def _roll_alone(self, number: int, block: Sequence[DialoguePlan]) -> None:
        async with self.calls:
            await self._roll_block(number, block, None)

    async def _roll_block(self, number: int, block: Sequence[DialoguePlan], gate: asyncio.Semaphore | None) -> None:
        if self.parts.rows(number) is None:
            dialogues = await run_block(
                block, self.setting, self.policy.engine, self.sampling, attempts=self.config.attempts, gate=gate
            )
            rows: list[Row] = [row for dialogue in dialogues for row in dialogue]
            self.parts.write(number, rows_to_table(rows, self.columns))
        self.progress.advance(len(block))

    @property
    def columns(self) -> list[str]:
        return [*ROLLOUT_COLUMNS, *(JUDGE_COLUMNS if self.setting.grading else ())]

    def _setting(self) -> Setting:
        config = self.config
        capabilities = self.policy.engine.capabilities
        limits = [n for n in (config.context_limit_tokens, capabilities.context_limit_tokens) if n is not None]
        return Setting(
            environment=self.environment,
            template=self.policy.template,
            history=self._history(),
            max_turns=self.environment.turn_limit if config.max_turns is None else config.max_turns,
            run_seed=config.seed,
            iteration=config.iteration,
            context_limit_tokens=min(limits) if limits else None,
            max_reply_tokens=config.max_reply_tokens,
            call_timeout_seconds=config.call_timeout_seconds,
            policy_digest=self.policy.digest,
            policy_step=self.policy.step,
            grading=self._grading(),
        )

    def _history(self) -> History:
        if self.probe is None:
            return "append"
        return self.probe.default_history if self.config.history == "auto" else self.config.history

    def _grading(self) -> LiveGrading | None:
        if self.config.grading == "after":
            return None
        judge = open_judge(self.config.judge, self.config.judge_options)
        return LiveGrading(judge, load_rubric(judge.rubric), self.config.stop)

    def _kept_tables(self, numbers: Sequence[int]) -> Iterator[pa.Table]:
        """The blocks of the output in file order, groups that were replaced left out."""
        tables: Iterable[pa.Table] = map(self.parts.read, numbers)
        if self.config.broken_groups == "drop":
            tables = leave_out_broken_groups(list(tables))
        if not self.dropped:
            yield from tables
            return
        whole = pa.concat_tables(tables)
        kept = whole.filter(pc.invert(pc.is_in(whole["group_id"], pa.array(sorted(self.dropped)))))
        yield kept.sort_by([(key, "ascending") for key in KEYS])

    def _finish(self, numbers: Sequence[int]) -> StageSummary:
        tallied = tally(self._kept_tables(numbers))
        counts = {**tallied.finish(), "replaced_degenerate_groups": len(self.dropped)}
        warnings = tuple(rollout_warnings(counts, self.config.semantic_values()))
        record = StageRecord(
            stage="rollout",
            options=self.config.semantic_values(),
            inputs=(InputFile("policy", self.policy.digest),),
            seed=self.config.seed,
            counts=counts,
            details=self._details(),
            versions=package_versions("dialrl", "torch", "transformers"),
            warnings=warnings,
        )
        self.parts.join(self.columns, self._kept_tables(numbers), Lineage((record,)))
        return StageSummary(
            "rollout",
            self.output,
            counts=counts,
            figures={
                "policy": self.policy.digest,
                "policy_step": self.policy.step,
                "history": self.setting.history,
                "history_probe": self.probe.summary(self.setting.history) if self.probe else None,
                **({"calls": called} if (called := self.calls.ledger.figures()) else {}),
                "end_reasons": dict(tallied.reasons.most_common()),
                "flags": dict(tallied.flags.most_common()),
            },
            warnings=warnings,
        )

    def _details(self) -> dict[str, Any]:
        sampling = self.sampling
        return {
            "policy_digest": self.policy.digest,
            "policy_step": self.policy.step,
            "sampling": {
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k,
                "min_p": sampling.min_p,
                "max_reply_tokens": sampling.max_reply_tokens,
            },
            "logprobs_kind": "drawn" if self.policy.engine.capabilities.logprobs else None,
            "history": self.setting.history,
            "template_probe": self.probe.to_details() if self.probe else None,
            **self._texts(),
        }

    def _texts(self) -> dict[str, Any]:
        """Digests of the texts a rollout depends on besides its options, which name files and not their content."""
        return {**self._provenance(), **self._template_digest()}

    def _template_digest(self) -> dict[str, str]:
        """Which text renders: a template may be a file, whose name in the options says nothing of its content."""
        digest = self.policy.template.digest if self.policy.template else None
        return {} if digest is None else {"chat_template": digest}

    def _provenance(self) -> dict[str, Any]:
        """Digests of prompts, cards and rubric, from parts that have any."""
        judge = self.setting.grading.judge if self.setting.grading else None
        parts: dict[str, object] = {"environment_made_from": self.environment, "judge_made_from": judge}
        known = {name: getattr(part, "provenance", None) for name, part in parts.items()}
        return {name: digests for name, digests in known.items() if digests}

    def _check_failures(self, counts: Mapping[str, int]) -> None:
        failed, all_dialogues = counts["failed_dialogues"], counts["dialogues"]
        if failed > self.config.max_failed * all_dialogues:
            raise FailureThresholdError(
                f"{failed} of {all_dialogues} dialogues failed: more than --max-failed {self.config.max_failed:g}."
                f" The file '{self.output}' was written; see its column 'error' (dialrl inspect), mend the cause, or"
                " allow more."
            )

    def _already_there(self, identity: Mapping[str, Any], *, overwrite: bool) -> StageSummary | None:
        record = TrajectoryFile.open(self.output).lineage.record("rollout")
        options = {} if record is None else dict(record.options)
        details = {} if record is None else record.details
        texts = self._texts()
        before = {**options, "policy": details.get("policy_digest"), **{name: details.get(name) for name in texts}}
        differences = differing_keys(before, {**identity["options"], "policy": identity["policy"], **texts})
        if overwrite and (record is None or differences):
            return None
        if record is None or differences:
            raise UsageError(
                f"Cannot resume '{self.output}': it is complete and was made with other settings:"
                f" {'; '.join(differences)}. Use --overwrite, or another output."
            )
        discard_parts(self.output)
        complete_run_file(self.output)
        self._check_failures(record.counts)
        return StageSummary("rollout", self.output, record.counts, {"already_complete": True}, tuple(record.warnings))


def _probe(policy: Policy) -> TemplateProbe | None:
    """What the template does to history; None for a policy that is reached by text alone."""
    if policy.template is None:
        return None
    return probe_template(policy.template, stops=getattr(policy.engine, "stop_ids", None))
