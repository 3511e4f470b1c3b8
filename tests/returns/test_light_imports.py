"""What the command line reads to print help loads no numpy and no pyarrow."""

import subprocess
import sys

import pytest

LIGHT = ["dialrl.returns.config", "dialrl.advantage.config", "dialrl.advantage.presets"]


@pytest.mark.parametrize("module", LIGHT)
def test_configurations_and_presets_are_light(module: str) -> None:
    code = f"import sys, {module}; print(sorted({{'numpy', 'pyarrow', 'torch', 'pandas'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_stages_load_no_deep_learning_framework() -> None:
    code = "import sys, dialrl.returns.stage, dialrl.advantage.stage; print({'torch', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
