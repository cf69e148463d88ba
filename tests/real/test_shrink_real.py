"""Real models through ``shrink``: how many of 315 masked tokens they still put back, without any training."""

import shutil

import pytest

from litebert.shrink.choose import Asked
from litebert.shrink.run import shrink_model

pytestmark = pytest.mark.weights

ALBERT = "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"
BERT = "rxnfp/models/transformers/bert_pretrained"


@pytest.fixture
def right_after(weights, masked_right, tmp_path):
    """Shrink a real model as asked and count what the folder that was written gets right."""

    def count(path: str, asked: Asked) -> tuple[int, int]:
        report = shrink_model(str(weights(path)), asked, tmp_path / "small")
        shutil.copy(weights(path) / "vocab.txt", tmp_path / "small")
        return masked_right(tmp_path / "small", len(report.kept))

    return count


@pytest.mark.parametrize(("depth", "right"), [(12, 302), (10, 302), (8, 304), (6, 303), (4, 297)])
def test_chemical_albert(depth, right, right_after):
    asked = Asked(drop=12 - depth, strategy="symmetric") if depth < 12 else Asked(keep="1-12")
    assert right_after(ALBERT, asked) == (right, 315)


@pytest.mark.parametrize(("depth", "right"), [(12, 295), (11, 291), (10, 292), (8, 266), (6, 233)])
def test_chemical_bert_with_its_top_layers_dropped(depth, right, right_after):
    asked = Asked(drop=12 - depth, strategy="top") if depth < 12 else Asked(keep="1-12")
    assert right_after(BERT, asked) == (right, 315)
