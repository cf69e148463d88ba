"""The scripts of ``examples/litebert_en`` import each other by name, as they do when one of them is run."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "litebert_en"))
