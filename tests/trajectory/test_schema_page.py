"""The published page of columns is the schema's own."""

from pathlib import Path

from dialrl.trajectory.schema_page import page

PAGE = Path(__file__).parents[2] / "docs" / "trajectory-file.md"


def test_the_page_of_columns_is_what_the_schema_says() -> None:
    remedy = "Write it again: python -m dialrl.trajectory.schema_page > docs/trajectory-file.md"
    assert PAGE.read_text(encoding="utf-8") == page(), remedy
