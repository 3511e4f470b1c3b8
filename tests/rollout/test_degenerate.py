"""Groups whose dialogues all earn the same teach nothing; others can be drawn in their place."""

import pytest
from tests.scripted import names, register, rolled_out, settings
from tests.trajectory_files import row

from dialrl.rollout.degenerate import degenerate_groups
from dialrl.testing import Fault, ScriptedEnvironment, ScriptedJudge, scripted_policy
from dialrl.trajectory.rows import rows_to_table


def group(name, *paths, outcome=None):
    """Dialogues whose position on one axis goes along ``paths``; None: a failed one."""
    return [
        row(name, sample, turn, status="error" if path is None else "ok", position=position, outcome=outcome)
        for sample, path in enumerate(paths)
        for turn, position in enumerate([None] if path is None else [[value] for value in path])
    ]


@pytest.mark.parametrize(
    ("rows", "degenerate"),
    [
        (group("g", (-8, -7), (-8, -7)), True),
        (group("g", (-8, -7), (-8, -6)), False),
        (group("g", (-8, -7), (-8,)), False),
        (group("g", (-8, -7), (-7.5, -7)), False),
        (group("g", (-0.5, 0), (0, 3)), True),  # inside the zone every place is distance 0
        (group("g", (-8,)), True),
        (group("g", (-8,), None), True),
        (group("g", None, None), True),
        ([*group("g", (-8,), outcome=1.0), *(dict(r, sample=1) for r in group("g", (-8,), outcome=0.0))], False),
    ],
    ids=["equal", "another end", "shorter", "another way", "in the zone", "one", "one good", "none good", "outcomes"],
)
def test_a_group_is_degenerate_when_its_good_dialogues_earn_the_same_at_every_turn(rows, degenerate):
    columns = ["group_id", "sample", "turn", "status", "position", "outcome"]
    assert degenerate_groups([rows_to_table(rows, columns)], {"g"}) == ({"g"} if degenerate else set())


def test_only_candidates_are_looked_at_and_blocks_may_cut_a_group():
    columns = ["group_id", "sample", "turn", "status", "position", "outcome"]
    tables = [
        rows_to_table(rows, columns) for rows in (group("a", (-8,), (-8,)) + group("b", (-8,)), group("b", (-7,)))
    ]
    moved = tables[1].set_column(1, tables[1].schema.field(1), rows_to_table([row("b", 1)])["sample"])
    assert degenerate_groups([tables[0], moved], {"b"}) == set()
    assert degenerate_groups([tables[0], moved], {"a", "b"}) == {"a"}


# drawing others in their place --------------------------------------------------------------------------------------


def live(groups, samples, spare, **options):
    user = {"lines": ["Hello.", "Go on."], "scenarios": names(8)}
    judged = {"grading": "live", "judge": "scripted", "resample_degenerate": spare}
    return settings(groups, samples, environment_options=user, **judged, **options)


def by_reply(reply):
    """A judge that rewards the word good."""
    return {"C.Prog": 1} if "good" in reply else {}


def policy_that_explores_in(*scenarios):
    """Says other things in each dialogue of these scenarios, the same in all others."""

    def reply(request):
        group, _, sample = request.dialogue.rpartition("/")
        return "good" if group in scenarios and sample == "0" else "bad"

    return scripted_policy(reply)


@pytest.fixture(autouse=True)
def _judge(monkeypatch):
    register(monkeypatch, judge=ScriptedJudge(by_reply))


def groups_of(rows):
    return sorted({row["group_id"] for row in rows})


def test_degenerate_groups_are_replaced_by_further_ones(tmp_path):
    plain, _ = rolled_out(tmp_path / "plain.parquet", live(4, 2, 0), policy_that_explores_in(*names(8)))
    kept = groups_of(plain)[:2]
    others = sorted(set(names(8)) - set(groups_of(plain)))
    rows, summary = rolled_out(tmp_path / "r.parquet", live(4, 2, 4), policy_that_explores_in(*kept, *others))
    assert summary.counts["replaced_degenerate_groups"] == 2
    assert len(groups_of(rows)) == 4
    assert set(kept) < set(groups_of(rows))
    assert [(r["group_id"], r["sample"], r["turn"]) for r in rows] == sorted(
        (r["group_id"], r["sample"], r["turn"]) for r in rows
    )
    assert summary.counts["dialogues"] == 8


def test_no_more_than_n_groups_are_drawn_and_the_rest_stays(tmp_path):
    policy = policy_that_explores_in()
    rows, summary = rolled_out(tmp_path / "r.parquet", live(3, 2, 2), policy)
    assert summary.counts["replaced_degenerate_groups"] == 2
    assert len(groups_of(rows)) == 3
    assert len({call.scenario.rpartition("/")[0] for call in policy.engine.calls}) == 5


def test_without_degenerate_groups_nothing_more_is_drawn(tmp_path):
    policy = policy_that_explores_in(*names(8))
    _, summary = rolled_out(tmp_path / "r.parquet", live(3, 2, 2), policy)
    assert summary.counts["replaced_degenerate_groups"] == 0
    assert len({call.scenario for call in policy.engine.calls}) == 6


def test_a_kill_among_the_replacements_changes_nothing(tmp_path):
    class Killed(BaseException):
        pass

    def config():
        return live(3, 2, 2, block_dialogues=2)

    rolled_out(tmp_path / "unbroken.parquet", config(), policy_that_explores_in())
    policy = policy_that_explores_in()
    generate, calls = policy.engine.generate_block, []

    def dies_late(requests, sampling):
        calls.append(len(requests))
        if len(calls) > 8:  # three blocks of two calls are the wanted groups, then one of the spare ones
            raise Killed
        return generate(requests, sampling)

    policy.engine.generate_block = dies_late
    with pytest.raises(Killed):
        rolled_out(tmp_path / "r.parquet", config(), policy)
    rolled_out(tmp_path / "r.parquet", config(), policy_that_explores_in(), resume=True)
    assert (tmp_path / "r.parquet").read_bytes() == (tmp_path / "unbroken.parquet").read_bytes()


def test_a_group_whose_dialogues_broke_is_replaced(tmp_path, monkeypatch):
    user = ScriptedEnvironment(["Hello.", "Go on."], scenarios=names(8), faults=[Fault("raise", times=4)])
    register(monkeypatch, environment=user, judge=ScriptedJudge(by_reply))
    rows, summary = rolled_out(
        tmp_path / "r.parquet", live(2, 2, 1, block_dialogues=2), policy_that_explores_in(*names(8))
    )
    assert summary.counts["replaced_degenerate_groups"] == 1
    assert {row["status"] for row in rows} == {"ok"}
