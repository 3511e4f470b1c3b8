"""A progress that remembers what it was told. Not a test module."""

from dialrl.progress import Silent


class Watched(Silent):
    """By task: how much work was announced and how much was done. ``figures``: the latest shown beside it."""

    def __init__(self) -> None:
        self.total: dict[str, int] = {}
        self.done: dict[str, int] = {}
        self.figures: dict[str, float] = {}

    def start(self, task: str, total: int | None = None, unit: str = "") -> None:
        self.task = task
        self.total[task], self.done[task] = total or 0, 0

    def advance(self, amount: int = 1, **figures: float) -> None:
        self.done[self.task] += amount
        self.figures = figures
