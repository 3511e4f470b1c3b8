"""``dialrl scenarios``: the scenarios of an environment."""

import json

import typer

from dialrl.cli.app import Entry
from dialrl.cli.command import Call, add_command, option
from dialrl.cli.plain_text import clean
from dialrl.summary import StageSummary

_LONGEST_FACT = 60
_ENVIRONMENT = option("environment", str, "The environment.", default="demo")


def register(app: typer.Typer, name: str, entry: Entry) -> None:
    group = typer.Typer(help=entry.help, no_args_is_help=True, rich_markup_mode="rich")
    split = option("split", str, "The split: train or test.", default="train")
    add_command(group, "list", listing, help="List the scenarios of a split.", extras=(_ENVIRONMENT, split))
    wanted = option("id", str, "The scenario's id.", default=..., flags=("--id",))
    add_command(group, "show", show, help="Show one scenario card.", extras=(_ENVIRONMENT, wanted))
    app.add_typer(group, name=name, rich_help_panel=entry.panel)


def listing(call: Call) -> StageSummary | None:
    from dialrl.environment.registry import open_environment

    scenarios = open_environment(call.extras["environment"]).scenarios(call.extras["split"])
    if call.as_json:
        cards = [{"scenario_id": s.scenario_id, "split": s.split, **s.card} for s in scenarios]
        typer.echo(json.dumps({"scenarios": cards}))
        return None
    for scenario in scenarios:
        facts = {name: value for name, value in scenario.card.items() if _is_fact(name, value)}
        line = f"{scenario.scenario_id}  {', '.join(f'{name} {value}' for name, value in facts.items())}"
        typer.echo(clean(line))
    return None


def show(call: Call) -> StageSummary:
    from dialrl.environment.registry import open_environment

    scenario = open_environment(call.extras["environment"]).find(call.extras["id"])
    return StageSummary("scenarios show", figures={"scenario_id": scenario.scenario_id, "card": scenario.card})


def _is_fact(name: str, value: object) -> bool:
    """Whether it belongs on the scenario's line: short values of one kind, the keys apart."""
    return (
        name not in ("scenario_id", "id", "split")
        and isinstance(value, (str, int, float, bool))
        and len(str(value)) <= _LONGEST_FACT
    )
