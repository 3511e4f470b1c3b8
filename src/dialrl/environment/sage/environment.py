"""Profiles as scenarios, a session a conversation, and the simulator and prompts they share."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dialrl.config import nearest, validated
from dialrl.endpoint.calls import ModelCalls
from dialrl.endpoint.settings import ModelSettings
from dialrl.environment.sage.options import SageOptions
from dialrl.environment.sage.profiles import Profile, load_profiles
from dialrl.environment.sage.rules import RULES
from dialrl.environment.sage.session import SageSession
from dialrl.errors import InputError, RunError, UsageError
from dialrl.prompts import Prompts
from dialrl.scenario.card import Scenario

PROMPTS = tuple(f"sage/{name}.jinja" for name in ("appraise", "policy", "speak"))


class SageEnvironment:
    """``options``: ``SageOptions``. The outcome of a conversation is a hundredth of its final emotion."""

    name = "sage"
    accepts_silence = False

    def __init__(self, **options: Any) -> None:
        self.options = validated(SageOptions, options, where="environment sage, environment_options")
        self.rules = RULES[self.options.rules]
        self.prompts = Prompts(self.options.prompts)
        profiles = load_profiles(Path(self.options.profiles))[: self.options.limit]
        self._profiles = {profile.id: profile for profile in profiles}
        self._calls: ModelCalls | None = None

    @property
    def turn_limit(self) -> int:
        """Policy turns: one less than the user's, who speaks first and last."""
        return self.rules.most_turns - 1

    def connect(self, calls: ModelCalls) -> None:
        """Ask through ``calls``."""
        self._calls = calls

    @property
    def provenance(self) -> dict[str, str]:
        """What made the conversations besides the options, for the lineage."""
        content = json.dumps([vars(profile) for profile in self._profiles.values()], sort_keys=True)
        profiles = "sha256:" + hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
        return {"prompts": self.prompts.digest(*PROMPTS), "profiles": profiles}

    @property
    def calls(self) -> ModelCalls:
        if self._calls is None:
            raise RunError("The environment 'sage' was used before connect(); roll out by dialrl.rollout.stage.")
        return self._calls

    @property
    def simulator(self) -> ModelSettings:
        """Who plays the users; raises UsageError when nobody does."""
        if self.options.simulator is None:
            raise UsageError(
                "The environment 'sage' needs a model that plays the users: dialrl evaluate sage --simulator NAME, in a"
                " pipeline environment_options.simulator.model."
            )
        return self.options.simulator

    def scenarios(self, split: str) -> Sequence[Scenario]:
        """The profiles of a split; one that names none is in the split test."""
        found = [_scenario(profile) for profile in self._profiles.values() if profile.split == split]
        if not found:
            known = sorted({profile.split for profile in self._profiles.values()})
            raise UsageError(f"'{self.options.profiles}' has no profiles of the split '{split}'; it has: {known}.")
        return found

    def find(self, scenario_id: str) -> Scenario:
        """The profile of that id. Raises InputError when there is none."""
        return _scenario(self._profile(scenario_id))

    def graded_outcome(self, end_reason: str, deficit: Sequence[float], position: Sequence[float]) -> float | None:
        """None: the emotion decides."""
        return None

    def open(self, scenario: Scenario, seed: int) -> SageSession:
        """A conversation with the user of ``scenario``. Raises UsageError when no simulator is configured."""
        _ = self.simulator
        return SageSession(self, self._profile(scenario.scenario_id), seed)

    def policy_prompt(self) -> str | None:
        """The policy's system prompt, which knows nothing of the profile."""
        return self.prompts.render("sage/policy.jinja").strip() if self.options.system_prompt else None

    def _profile(self, scenario_id: str) -> Profile:
        if scenario_id not in self._profiles:
            raise InputError(
                f"'{self.options.profiles}' has no profile '{scenario_id}'.{nearest(scenario_id, self._profiles)}"
            )
        return self._profiles[scenario_id]


def _scenario(profile: Profile) -> Scenario:
    return Scenario(
        profile.id, profile.split, {**profile.about, **{k: v for k, v in vars(profile).items() if k != "about"}}
    )
