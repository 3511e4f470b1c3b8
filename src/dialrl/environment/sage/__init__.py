"""The environment ``sage``: a simulated user whose emotion a language model moves, as in SAGE and RLVER."""
