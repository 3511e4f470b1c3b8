"""Puts the repository root on the path, so that every test folder can import ``tests.toys`` and its like."""
