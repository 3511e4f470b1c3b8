"""``dialrl scenarios``: the scenarios of an environment, and support cards as files."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from dialrl.cli.app import Entry
from dialrl.cli.command import Call, add_command, option
from dialrl.cli.plain_text import clean
from dialrl.errors import InputError, UsageError
from dialrl.scenario.card_config import SplitConfig
from dialrl.summary import StageSummary

if TYPE_CHECKING:
    from dialrl.state.rubric import Rubric

_LONGEST_FACT = 60
_ENVIRONMENT = option("environment", str, "The environment.", default="demo")
_CARDS = option("cards", str, "File or folder of cards of your own (environment support).")
_FILES = "Files or folders of cards: YAML, JSON, JSONL, markdown."


def register(app: typer.Typer, name: str, entry: Entry) -> None:
    group = typer.Typer(help=entry.help, no_args_is_help=True, rich_markup_mode="rich")
    split = option("split", str, "The split: train or test.", default="train")
    add_command(group, "list", listing, help="List the scenarios of a split.", extras=(_ENVIRONMENT, split, _CARDS))
    wanted = option("id", str, "The scenario's id.", default=..., flags=("--id",))
    add_command(group, "show", show, help="Show one scenario card.", extras=(_ENVIRONMENT, wanted, _CARDS))
    rubric = option("rubric", str, "The rubric whose deficit items the cards name.", default="support")
    add_command(
        group,
        "validate",
        validate,
        help="Check support cards: fields, levels, ids, and that no training card is a test card.",
        inputs=_FILES,
        extras=(rubric,),
    )
    add_command(
        group,
        "split",
        divide,
        help="Divide support cards into train and test; any readable form in, YAML out.",
        config=SplitConfig,
        section="scenarios-split",
        inputs=_FILES,
        output="required",
    )
    app.add_typer(group, name=name, rich_help_panel=entry.panel)


def _environment(call: Call) -> Any:
    from dialrl.environment.registry import open_environment

    name, cards = call.extras["environment"], call.extras["cards"]
    if name == "demo" and cards is not None:
        raise UsageError(f"--cards '{cards}': the environment 'demo' has none. Add --environment support.")
    return open_environment(name, {} if cards is None else {"cards": cards})


def listing(call: Call) -> StageSummary | None:
    scenarios = _environment(call).scenarios(call.extras["split"])
    if call.as_json:
        cards = [{"scenario_id": s.scenario_id, "split": s.split, **s.card} for s in scenarios]
        typer.echo(json.dumps({"scenarios": cards}))
        return None
    for scenario in scenarios:
        facts = ", ".join(f"{name} {value}" for name, value in _facts(scenario.card).items())
        line = f"{scenario.scenario_id}  {facts}"
        typer.echo(clean(line))
    return None


def show(call: Call) -> StageSummary:
    scenario = _environment(call).find(call.extras["id"])
    return StageSummary("scenarios show", figures={"scenario_id": scenario.scenario_id, "card": scenario.card})


def validate(call: Call) -> StageSummary:
    from dialrl.scenario.cards import cards_with_files
    from dialrl.scenario.split import refuse_test_cards
    from dialrl.state.rubric import load_rubric

    placed = cards_with_files(call.inputs)
    rubric = load_rubric(call.extras["rubric"])
    for card, file in placed:
        if card.deficit is not None:
            _check_deficit(f"'{file}', card '{card.id}'", card.deficit, rubric)
    cards = [card for card, _ in placed]
    refuse_test_cards([c for c in cards if c.split == "train"], [c for c in cards if c.split == "test"])
    named = {
        name: dict(sorted(Counter(getattr(card, name) for card in cards).items()))
        for name in ("split", "language", "crisis")
    }
    genders = dict(sorted(Counter(card.person.gender for card in cards).items()))
    ages = {"youngest": min(c.person.age for c in cards), "oldest": max(c.person.age for c in cards)}
    return StageSummary(
        "scenarios validate", counts={"cards": len(cards)}, figures={**named, "gender": genders, "age": ages}
    )


def _check_deficit(where: str, levels: Mapping[str, int], rubric: "Rubric") -> None:
    """Raise InputError naming the file and card whose deficit is not one of the rubric."""
    try:
        rubric.deficit_from_levels(levels)
    except InputError as error:
        raise InputError(f"{where}, field 'deficit': {error}") from None


def divide(call: Call) -> StageSummary:
    from dialrl.scenario.cards import cards_text, load_all
    from dialrl.scenario.split import assign_split
    from dialrl.trajectory.atomic import write_text
    from dialrl.trajectory.writer import refuse_existing

    if call.target.suffix not in (".yaml", ".yml"):
        raise UsageError(f"-o '{call.target}': cards are written as YAML; give a name that ends in .yaml.")
    refuse_existing(call.target, overwrite=call.overwrite, resumable=False)
    cards = assign_split(load_all(call.inputs), call.config.test_share, call.config.seed)
    write_text(call.target, cards_text(cards))
    return StageSummary("scenarios split", call.target, counts=dict(Counter(card.split for card in cards)))


def _facts(card: Mapping[str, Any]) -> dict[str, Any]:
    """What belongs on the scenario's line: the headings of a support card, of others every short value."""
    if isinstance(card.get("person"), Mapping):
        person = card["person"]
        who = f"{person['name']} ({person['age']}, {person['gender']})"
        return {"person": who, **{name: card[name] for name in ("language", "theme", "threshold", "crisis")}}
    return {
        name: value
        for name, value in card.items()
        if name not in ("scenario_id", "split")
        and isinstance(value, (str, int, float, bool))
        and len(str(value)) <= _LONGEST_FACT
    }
