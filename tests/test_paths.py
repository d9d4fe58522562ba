"""CONTRIBUTING.md names the files that one image goes through."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_path_of_one_image_is_that_in_contributing():
    command = [sys.executable, str(ROOT / "benchmarks" / "paths.py"), "--check"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
