"""The layout of one packed belief forward: a dialogue's tokens, and a two-level tree of branches behind them.

The *trunk* holds the exact ids of the dialogue. At each *cut* c (a number of trunk tokens) hang the wrapper and, as its
children, the accepted answers. All indices are local to the dialogue. A branch's tokens continue the logical positions
c, c + 1, ... and see the trunk before their cut, their own node up to themselves, and their parent; a node's first
token is predicted at its *logical* predecessor (trunk token c - 1, or the wrapper's last), not its physical neighbour.
``join`` puts the trees of several dialogues into one row. Source: docs/stages/judge-information-gain.md. Pure numpy.
Not here: models, and what the answers are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dialrl.errors import InputError
from dialrl.model.belief.gold import GoldAlias

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
TRUNK, NO_NODE = 0, -1


@dataclass(frozen=True)
class BeliefTask:
    """One training sequence to be scored: belief in each of ``aliases`` at each of ``cuts`` (1 to len(trunk_ids))."""

    trunk_ids: Ints
    cuts: tuple[int, ...]
    aliases: tuple[GoldAlias, ...]

    def __post_init__(self) -> None:
        wrong = [cut for cut in self.cuts if not 1 <= cut <= len(self.trunk_ids)]
        if wrong or not self.aliases:
            raise InputError(
                f"A belief needs cuts from 1 to {len(self.trunk_ids)} and an answer; got cuts {list(self.cuts)} and"
                f" {len(self.aliases)} answers."
            )

    @property
    def shape(self) -> tuple[int, int]:
        """(cuts, aliases)."""
        return len(self.cuts), len(self.aliases)


@dataclass(frozen=True)
class Branches:
    """Places ``start`` to ``end`` of a row: all branches of one cut. They see the trunk from ``first`` to ``cut``."""

    start: int
    end: int
    first: int
    cut: int


@dataclass(frozen=True)
class BeliefTree:
    """Inputs (N,) of a row of one dialogue, or of several, and what its S scored tokens are predicted by.

    ``starts_N``, ``cuts_N``: where the trunk that a token sees begins and ends; ``nodes_N``: its node (0: trunk);
    ``parents_N``: an answer's wrapper. ``predictors_S``: places; ``targets_S``: gold ids; ``entries_S``: number of
    (cut, alias), cut by cut.
    """

    ids_N: Ints
    starts_N: Ints
    positions_N: Ints
    cuts_N: Ints
    nodes_N: Ints
    parents_N: Ints
    predictors_S: Ints
    targets_S: Ints
    entries_S: Ints

    @property
    def tokens(self) -> int:
        return len(self.ids_N)

    def visible(self) -> Flags:
        """(N, N): whether the token of the row may see that of the column."""
        place = np.arange(self.tokens)
        query, key = place[:, None], place[None, :]
        in_trunk = (self.nodes_N == TRUNK)[None, :] & (key >= self.starts_N[:, None]) & (key < self.cuts_N[:, None])
        return np.asarray(in_trunk | self._in_branch(query, key))

    def visible_in(self, branches: Branches) -> Flags:
        """(M, M): the same within the branches of one cut."""
        place = np.arange(branches.start, branches.end)
        return self._in_branch(place[:, None], place[None, :])

    def _in_branch(self, query: Ints, key: Ints) -> Flags:
        same_node = (self.nodes_N[query] == self.nodes_N[key]) & (self.nodes_N[key] != TRUNK) & (key <= query)
        return np.asarray(same_node | (self.parents_N[query] == self.nodes_N[key]))

    def trunks(self) -> list[tuple[int, int]]:
        """Start and end of each dialogue's trunk in the row."""
        return [(low, high) for low, high in self._runs() if self.nodes_N[low] == TRUNK]

    def branches(self) -> list[Branches]:
        """The branches of each cut that has any, in order of place."""
        return [
            Branches(low, high, int(self.starts_N[low]), int(self.cuts_N[low]))
            for low, high in self._runs()
            if self.nodes_N[low] != TRUNK
        ]

    def _runs(self) -> list[tuple[int, int]]:
        """Start and end of what is attended to in one piece: a trunk, or the branches of a cut."""
        cut_N = np.where(self.nodes_N == TRUNK, -1, self.cuts_N)
        changes = (np.diff(self.starts_N) != 0) | (np.diff(cut_N) != 0)
        bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), self.tokens]
        return list(pairwise(bounds))


@dataclass
class _Growing:
    """The tree while its branches are appended."""

    ids: list[int]
    positions: list[int]
    cuts: list[int]
    nodes: list[int]
    parents: list[int]
    nodes_made: int = 0
    predictors: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    entries: list[int] = field(default_factory=list)

    def add_node(self, ids: Sequence[int], cut: int, position: int, parent: int) -> int:
        """Append a node; its number."""
        self.nodes_made += 1
        self.ids += ids
        self.positions += range(position, position + len(ids))
        self.cuts += [cut] * len(ids)
        self.nodes += [self.nodes_made] * len(ids)
        self.parents += [parent] * len(ids)
        return self.nodes_made

    def add_alias(self, alias: GoldAlias, cut: int, parent: int, predecessor: int, entry: int) -> None:
        """Append an answer; its last token is predicted and never read, so it is no input."""
        start = len(self.ids)
        self.add_node(alias.gold_ids[:-1], cut, cut + len(alias.wrapper_ids), parent)
        self.predictors += [predecessor, *range(start, len(self.ids))]
        self.targets += alias.gold_ids
        self.entries += [entry] * len(alias.gold_ids)


def build_tree(task: BeliefTask) -> BeliefTree:
    """The layout of ``task``.

    Example: trunk 5 6 7, cut 2, wrapper 8, answer 9 4: ids 5 6 7 8 9, positions 0 1 2 2 3; the wrapper (place 3) sees
    5 6 and itself; 9 is predicted at place 3, 4 at place 4.
    """
    length = len(task.trunk_ids)
    trunk = [int(token) for token in task.trunk_ids]
    growing = _Growing(trunk, list(range(length)), list(range(1, length + 1)), [TRUNK] * length, [NO_NODE] * length)
    for number, cut in enumerate(task.cuts):
        _add_cut(growing, task, cut, first_entry=number * len(task.aliases))
    columns = (
        growing.ids, [0] * len(growing.ids), growing.positions, growing.cuts, growing.nodes, growing.parents,
        growing.predictors, growing.targets, growing.entries,
    )  # fmt: skip
    return BeliefTree(*(np.array(column, dtype=np.int64) for column in columns))


def _add_cut(growing: _Growing, task: BeliefTask, cut: int, *, first_entry: int) -> None:
    """One wrapper a cut; more only where a tokenizer merges the wrapper's end with the answer's beginning."""
    wrappers: dict[tuple[int, ...], tuple[int, int]] = {}
    for offset, alias in enumerate(task.aliases):
        wrapper = alias.wrapper_ids
        if wrapper not in wrappers:
            node = growing.add_node(wrapper, cut, cut, NO_NODE) if wrapper else NO_NODE
            wrappers[wrapper] = (node, len(growing.ids) - 1 if wrapper else cut - 1)
        node, predecessor = wrappers[wrapper]
        growing.add_alias(alias, cut, node, predecessor, first_entry + offset)


def join(trees: Sequence[BeliefTree]) -> BeliefTree:
    """The trees in one row: places, cuts and nodes move on, logical positions and entries stay the dialogue's own.

    Example: two trees of 4 and 3 tokens; cut 2 of the second is place 6 of the row.
    """
    starts = np.cumsum([0, *(tree.tokens for tree in trees)])
    nodes = np.cumsum([0, *(tree.nodes_N.max() for tree in trees)])
    moved = [_moved(tree, start, node) for tree, start, node in zip(trees, starts, nodes, strict=False)]
    names = [column.name for column in fields(BeliefTree)]
    return BeliefTree(*(np.concatenate([getattr(tree, name) for tree in moved]) for name in names))


def _moved(tree: BeliefTree, start: int, node: int) -> BeliefTree:
    return replace(
        tree,
        starts_N=tree.starts_N + start,
        cuts_N=tree.cuts_N + start,
        nodes_N=np.where(tree.nodes_N == TRUNK, TRUNK, tree.nodes_N + node),
        parents_N=np.where(tree.parents_N == NO_NODE, NO_NODE, tree.parents_N + node),
        predictors_S=tree.predictors_S + start,
    )
