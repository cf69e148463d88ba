"""Parameter counts against the figures that follow from the papers' architectures."""

import pytest

from litebert.nn.config import preset_config
from litebert.planning.count import count_parameters


@pytest.mark.parametrize(
    "name,bare,with_heads",
    [
        ("albert-base", 11_683_584, 11_813_810),
        ("albert-large", 17_683_968, 17_847_474),
        ("albert-xlarge", 58_724_864, 59_021_490),
        ("albert-xxlarge", 222_595_584, 223_158_450),
        ("bert-base", 109_482_240, 110_106_428),
        ("bert-large", 335_141_888, 336_226_108),
    ],
)
def test_presets(name: str, bare: int, with_heads: int) -> None:
    counts = count_parameters(preset_config(name))
    assert (counts.bare, counts.with_heads) == (bare, with_heads)


def test_the_largest_baseline_has_about_one_and_a_quarter_billion() -> None:
    assert round(count_parameters(preset_config("bert-xlarge")).bare / 1e9, 3) == 1.276


@pytest.mark.parametrize(
    "embedding_width,share,millions",
    [
        (64, "none", 87.648),
        (128, "none", 89.650),
        (256, "none", 93.655),
        (768, "none", 109.081),
        (64, "all", 9.681),
        (128, "all", 11.684),
        (256, "all", 15.688),
        (768, "all", 31.115),
        (768, "attention", 83.078),
        (768, "ffn", 57.118),
        (128, "attention", 63.647),
        (128, "ffn", 37.687),
    ],
)
def test_embedding_width_and_sharing(embedding_width: int, share: str, millions: float) -> None:
    config = preset_config("albert-base", [f"embedding_width={embedding_width}", f"share={share}"])
    assert round(count_parameters(config).bare / 1e6, 3) == millions


@pytest.mark.parametrize("dropped,millions", [(0, 109.48), (2, 95.31), (4, 81.13), (6, 66.96)])
def test_dropping_layers_of_bert(dropped: int, millions: float) -> None:
    config = preset_config("bert-base", [f"num_layers={12 - dropped}"])
    assert round(count_parameters(config).bare / 1e6, 2) == millions


def test_one_bert_layer() -> None:
    deep, shallow = (count_parameters(preset_config("bert-base", [f"num_layers={n}"])) for n in (12, 11))
    assert deep.bare - shallow.bare == 7_087_872


def test_parts_add_up_and_groups_count_once() -> None:
    one = count_parameters(preset_config("albert-base"))
    four = count_parameters(preset_config("albert-base", ["num_groups=4"]))
    assert one.embeddings + one.attention + one.feed_forward + one.pooler == one.bare
    assert (four.attention, four.feed_forward) == (4 * one.attention, 4 * one.feed_forward)
    assert four.embeddings == one.embeddings
