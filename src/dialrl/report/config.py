"""Settings of ``dialrl report``: how much of what was read goes into the page."""

from dialrl.config import StageConfig, semantic


class ReportConfig(StageConfig):
    """What the page holds; everything else about it is fixed."""

    title: str | None = semantic(None, help="Heading of the page; without it the names of what was read.")
    dialogues: int = semantic(5_000, ge=1, help="Dialogues of each file that can be opened (whole groups).")
    quotes: int = semantic(1_000_000, ge=0, help="Characters of judges' evidence and reasoning, over all files.")
    tokens: int = semantic(400_000, ge=0, help="Token ids in the page, over all files; beyond it there is only text.")
