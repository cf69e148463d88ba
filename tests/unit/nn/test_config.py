"""Plans follow from how blocks are shared; a config that makes no sense is refused in words."""

import pytest

from litebert.config import preset_names
from litebert.errors import InputError
from litebert.nn.config import family_config, preset_config


def plan(**fields):
    return preset_config("albert-tiny", [f"{name}={value}" for name, value in fields.items()]).plan


def test_plans():
    assert plan(share="none") == ((0, 0), (1, 1), (2, 2), (3, 3))
    assert plan(share="all") == ((0, 0),) * 4
    assert plan(share="attention") == ((0, 0), (0, 1), (0, 2), (0, 3))
    assert plan(share="ffn") == ((0, 0), (1, 0), (2, 0), (3, 0))
    assert plan(num_groups=2) == ((0, 0), (0, 0), (1, 1), (1, 1))
    assert plan(layers_per_group=2) == ((0, 0), (1, 1), (0, 0), (1, 1))
    assert plan(num_layers=8, num_groups=2, layers_per_group=2) == tuple((b, b) for b in (0, 1, 0, 1, 2, 3, 2, 3))
    assert plan(share="attention", num_groups=2) == ((0, 0), (0, 1), (1, 2), (1, 3))
    assert plan(custom_plan="[[1,0],[0,1],[1,1],[0,0]]") == ((1, 0), (0, 1), (1, 1), (0, 0))


def test_uneven_groups_are_the_papers():
    """Group of depth i = floor(i * groups / layers); for odd sizes Hugging Face rounds, and we follow."""
    for layers in (1, 2, 3, 4, 6, 8, 12, 16, 24, 48):
        for groups in range(1, layers + 1):
            config = preset_config("albert-tiny", [f"num_layers={layers}", f"num_groups={groups}"])
            assert [a for a, _ in config.plan] == [i * groups // layers for i in range(layers)]


def test_every_preset_resolves():
    names = preset_names("models")
    assert len(names) == 23
    for name in names:
        assert preset_config(name).num_layers == len(preset_config(name).plan)


def test_the_released_xlarge_has_16_heads():
    assert preset_config("albert-xlarge").num_heads == 16


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["widht=3"], "did you mean 'width'"),
        (["width=127"], "not a multiple of num_heads"),
        (["width=abc"], "must be a whole number"),
        (["share=some"], "all, attention, ffn, none"),
        (["num_groups=99"], "must be from 1 to 4"),
        (["layers_per_group=3"], "not a multiple of layers_per_group"),
        (["custom_plan=[[0,0]]"], "1 entries but num_layers is 4"),
        (["dropout=1.5"], "less than 1"),
        (["vocab_size=0"], "1 or more"),
        (["max_positions=0"], "max_positions is 0 but must be 1 or more"),
        (["num_segments=-1"], "num_segments is -1 but must be 0 or more"),
        (["embedding_projection=false"], "cannot be false"),
        (["width"], "field=value"),
        (["dropout=true"], "dropout"),
        (["num_layers=true"], "num_layers"),
    ],
)
def test_nonsense_is_refused_in_words(overrides, words):
    with pytest.raises(InputError, match=words):
        preset_config("albert-tiny", overrides)


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'albert-base'"):
        preset_config("albert-bsae")
    with pytest.raises(InputError, match="did you mean 'roberta'"):
        family_config({"family": "robertta"})


def test_numbers_may_be_written_as_yaml_reads_them():
    assert preset_config("albert-tiny", ["norm_eps=1e-5"]).norm_eps == 1e-5
