"""What an iteration warns of is printed as it finishes, each kind once."""

from dialrl.cli.train_view import IterationTable


def record(iteration: int, *warnings: str, of_the_update: tuple[str, ...] = ()) -> dict:
    return {
        "iteration": iteration, "score": None, "mean_turns": 3.0, "seconds": {"rollout": 1.0},
        "warnings": list(warnings), "update": {"warnings": list(of_the_update)},
    }  # fmt: skip


def test_warnings_of_stages_and_of_the_update_are_printed_once_a_kind(capsys):
    with IterationTable(3, quiet=False) as table:
        table.add(record(0, "6 judgements are missing.", of_the_update=("no learning signal: 6 without advantage",)))
        table.add(record(1, "2 judgements are missing.", "No turn has a reward."))
        table.add(record(2))
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("!")]
    assert lines == [
        "! iteration 1: 6 judgements are missing.",
        "! iteration 1: no learning signal: 6 without advantage",
        "! iteration 2: No turn has a reward.",
    ]
