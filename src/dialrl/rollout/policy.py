"""A policy ready to talk: engine, chat template, digest, and the number of updates its weights have seen."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dialrl.endpoint.settings import EndpointSettings
from dialrl.engine import EngineOptions, open_engine
from dialrl.errors import InputError, MissingInputError
from dialrl.json_file import read_object
from dialrl.model.find import find_policy
from dialrl.model.loading import load_tokenizer
from dialrl.model.template import ChatTemplate
from dialrl.rollout.stage import Policy
from dialrl.trajectory.parts import journal_path


def open_policy(
    policy: str | Path,
    *,
    engine: str = "hf",
    device: str = "cpu",
    engine_options: Mapping[str, Any] | None = None,
    endpoints: Mapping[str, EndpointSettings] | None = None,
    template_options: Mapping[str, Any] | None = None,
    continued: Path | None = None,
) -> Policy:
    """The policy in a directory (``find_policy``) on an engine of that name, or a model that an endpoint serves.

    ``template_options``: variables of the chat template, in every rendering. Without token ids there is no template
    here: the policy is reached by text, and the endpoint gets the options. ``continued``: the output that a resumed
    rollout goes on with; what an endpoint was asked for it before is not asked again.
    """
    place = _place(policy, engine)
    options = EngineOptions(
        device=device,
        more=engine_options or {},
        endpoints=endpoints or {},
        template_options=template_options or {},
        journal_path=None if continued is None else journal_path(continued),
    )
    opened = open_engine(engine, place, options)
    check_digest(place, opened.policy_digest)
    template = ChatTemplate(load_tokenizer(place), template_options) if opened.capabilities.token_ids else None
    return Policy(opened, template, opened.policy_digest, updates_seen(place))


def _place(policy: str | Path, engine: str) -> str | Path:
    """Where the policy lies; an endpoint's model may be a mere name."""
    try:
        return find_policy(policy)
    except MissingInputError:
        if engine == "hf":
            raise
        return str(policy)


def deliver(policy: Policy, place: str | Path) -> Policy:
    """The same engine with the weights of another policy directory of the same run."""
    policy.engine.load_weights(Path(place))
    check_digest(place, policy.engine.policy_digest)
    return Policy(policy.engine, policy.template, policy.engine.policy_digest, updates_seen(place))


def check_digest(place: str | Path, digest: str) -> None:
    """Raise InputError when a policy directory's weights are not the ones its manifest names."""
    manifest = _manifest(place)
    if manifest and manifest.get("digest") not in (None, digest):
        raise InputError(
            f"The weights in '{place}' have digest {digest}, its manifest.json says {manifest['digest']}: files were"
            " changed after it was written. Run the update again, or use its model/ directory as a plain policy."
        )


def updates_seen(place: str | Path) -> int:
    """Updates that made these weights; 0 for a policy that no update wrote."""
    step = _manifest(place).get("step", 0)
    if not isinstance(step, int):
        raise InputError(f"'{place}': its manifest.json has step {step!r}; expected a number. Write the policy again.")
    return step


def _manifest(place: str | Path) -> dict[str, Any]:
    """The manifest of a policy directory; empty for any other place."""
    manifest = Path(place) / "manifest.json"
    if not manifest.is_file():
        return {}
    return read_object(manifest, remedy="Write the policy again.")
