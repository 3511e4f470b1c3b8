"""Whether vLLM can be had here: ``python can_install.py VENV REQUIREMENT``. Exit codes: 0 yes, 3 no, 1 not known.

Only the index's own word that it has no such package for this platform and Python counts as a no; a network that is
down is an error. Not a test module.
"""

import subprocess
import sys
from pathlib import Path

NO_SUCH_PACKAGE = "No matching distribution found"
NOT_ASKED = ("Retrying", "connection broken", "Could not fetch URL")  # pip says the sentence above then too


def main(environment: str, requirement: str) -> int:
    if (Path(environment) / ".installed").is_file():
        return 0
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--quiet", requirement]
    asked = subprocess.run(command, capture_output=True, text=True)
    if asked.returncode == 0:
        return 0
    print(asked.stderr, file=sys.stderr)
    is_no = NO_SUCH_PACKAGE in asked.stderr and not any(words in asked.stderr for words in NOT_ASKED)
    return 3 if is_no else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
