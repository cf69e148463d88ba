"""From the words of ``litebert pretrain`` to settings: what is misspelt or misplaced is told with what to write."""

from pathlib import Path

import pytest

from litebert.config import parse_share
from litebert.errors import InputError
from litebert.pretraining.recipe import read_recipe
from litebert.pretraining.run import bound_from, settings_from
from litebert.train.settings import Bound


def settings(preset: str, *words: str):
    """Settings of a run of ten steps."""
    return settings_from(preset, words, Path("store"), Path("run"), bound=Bound(steps=10), device="cpu")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mask_rat=0.2"], "neither the model nor the recipe has a field 'mask_rat'; did you mean 'mask_rate'?"),
        (["widht=64"], "did you mean 'width'?"),
        (["fast"], "'fast' is not of the form field=value"),
    ],
)
def test_a_misspelt_field(words, said):
    with pytest.raises(InputError) as caught:
        settings("albert-tiny", *words)
    assert said in str(caught.value)


def test_a_folder_in_place_of_a_preset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").mkdir()
    (tmp_path / "albert-tiny").mkdir()  # a run may well be called so
    with pytest.raises(InputError, match=r"'old' is a folder; name a preset such as albert-small.*--from"):
        settings("old")
    assert settings("albert-tiny").preset == "albert-tiny"


def test_a_plain_number_is_one_stage():
    recipe = read_recipe("budget", ["batches.tokens=4096", "batches.lengths=64", "growth.depths=0.5"])
    assert (recipe.batches.tokens, recipe.batches.lengths, recipe.growth.depths) == (
        ((0.0, 4096),),
        ((0.0, 64),),
        ((0.0, 0.5),),
    )
    assert read_recipe("budget", ["batches.lengths=[[0,64],[0.5,128]]"]).batches.lengths == ((0.0, 64), (0.5, 128))
    chosen = settings("albert-tiny", "batches.tokens=4096", "num_layers=2")
    assert chosen.recipe.batches.tokens == ((0.0, 4096),)
    assert chosen.fixed == {"batches.tokens"} and chosen.overrides == ("num_layers=2",)


@pytest.mark.parametrize(("text", "said"), [("5", "for 5 in a hundred write 5%"), ("100%", "to below 100%")])
def test_a_share_that_is_none(text, said):
    with pytest.raises(InputError) as caught:
        parse_share(text, "--held-out")
    assert str(caught.value).endswith(said)


def test_how_long_to_train():
    assert bound_from(budget=None, steps=None, flops=None) is None
    assert settings_from("albert-tiny", [], Path("store"), Path("run"), bound=None, device="cpu").bound.steps == 5000
    assert bound_from(budget="2m", steps=None, flops=None, tokens=1e6) == Bound(seconds=120.0, tokens=1_000_000)
    with pytest.raises(InputError, match="tokens and flops must be positive"):
        bound_from(budget=None, steps=None, flops=0.0)
