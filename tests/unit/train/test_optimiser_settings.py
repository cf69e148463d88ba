"""The settings of an optimiser: what is refused, and how recipes give them."""

import subprocess
import sys

import pytest

from litebert.config import build
from litebert.errors import InputError
from litebert.train.settings import OptimiserSettings


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"name": "adam"}, "did you mean 'adamw'"),
        ({"rate": 0.0}, "rate is 0.0"),
        ({"rate": float("nan")}, "rate is nan"),
        ({"betas": (0.9, 1.0)}, "betas is"),
        ({"weight_decay": -0.1}, "weight_decay is -0.1"),
        ({"muon_momentum": 1.0}, "muon_momentum is 1.0"),
        ({"part_rates": (("attentoin", 0.1),)}, "did you mean 'attention'"),
        ({"part_rates": (("heads", 0.1), ("heads", 0.2))}, "twice"),
        ({"part_rates": (("heads", -1.0),)}, "0 or more"),
    ],
)
def test_bad_settings(fields, words):
    with pytest.raises(InputError, match=words):
        OptimiserSettings(**fields)


def test_settings_from_a_recipe():
    fields = {"name": "lamb", "rate": "1.76e-3", "part_rates": [["attention", 0.1]], "betas": [0.9, 0.98]}
    settings = build(OptimiserSettings, fields)
    assert settings.part_rate("attention") == 0.1 and settings.part_rate("heads") == 1.0
    assert settings.betas == (0.9, 0.98) and settings.rate == 0.00176


def test_settings_need_no_torch():
    """Recipes are listed and shown in an instant."""
    code = "import sys, litebert.train.settings; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
