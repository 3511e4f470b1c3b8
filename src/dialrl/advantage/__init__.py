"""The stage ``advantage``: one weight a turn, from returns and rewards compared within pools."""
