"""Real models through ``shrink``: how many of 315 masked tokens they still put back, without any training."""

import shutil
from itertools import pairwise

import pytest
import torch
import transformers

from litebert.shrinking.choose import DropRequest, shrink_model
from litebert.text.tokenizer_files import SMILES, pattern_tokenizer

pytestmark = pytest.mark.weights

ALBERT = "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"
BERT = "rxnfp/models/transformers/bert_pretrained"
REACTIONS = (
    "CC(=O)O.OCC>>CC(=O)OCC",
    "Brc1ccccc1.OB(O)c1ccccc1>>c1ccc(-c2ccccc2)cc1",
    "COC(=O)c1ccc(Br)cc1.[Li+].[OH-]>>O=C(O)c1ccc(Br)cc1",
)


@pytest.fixture
def right_after(weights, masked_right, tmp_path):
    """Shrink a real model as asked and count what the folder that was written gets right."""

    def count(path: str, asked: DropRequest) -> tuple[int, int]:
        report = shrink_model(str(weights(path)), asked, tmp_path / "small")
        shutil.copy(weights(path) / "vocab.txt", tmp_path / "small")
        return masked_right(tmp_path / "small", len(report.kept))

    return count


@pytest.mark.parametrize(("depth", "right"), [(12, 302), (10, 302), (8, 304), (6, 303), (4, 297)])
def test_chemical_albert(depth, right, right_after):
    asked = DropRequest(drop=12 - depth, strategy="symmetric") if depth < 12 else DropRequest(keep="1-12")
    assert right_after(ALBERT, asked) == (right, 315)


@pytest.mark.parametrize(("depth", "right"), [(12, 295), (11, 291), (10, 292), (8, 266), (6, 233)])
def test_chemical_bert_with_its_top_layers_dropped(depth, right, right_after):
    asked = DropRequest(drop=12 - depth, strategy="top") if depth < 12 else DropRequest(keep="1-12")
    assert right_after(BERT, asked) == (right, 315)


def test_contribution_on_a_real_model_is_what_a_plain_loop_finds(weights, tmp_path):
    folder = weights(BERT)
    words = pattern_tokenizer(folder / "vocab.txt", SMILES)
    words.save(tmp_path / "words")
    (tmp_path / "text.txt").write_text("\n".join(REACTIONS) + "\n")
    theirs = transformers.BertModel.from_pretrained(
        folder, config=transformers.BertConfig.from_json_file(folder / "config.json"), use_safetensors=None
    ).eval()
    rows = []
    for reaction in REACTIONS:
        with torch.no_grad():
            states = theirs(torch.tensor([words.encode(reaction).ids]), output_hidden_states=True).hidden_states
        cosines = [torch.cosine_similarity(a[0, 0], b[0, 0], dim=0) for a, b in pairwise(states)]
        rows.append(torch.stack(cosines))
    expected = torch.stack(rows).mean(0).tolist()
    for count in (2, 4, 6):
        asked = DropRequest(
            drop=count, strategy="contribution", text=(str(tmp_path / "text.txt"),), tokenizer=tmp_path / "words"
        )
        report = shrink_model(str(folder), asked, None)
        plain = sorted(range(1, 13), key=lambda layer: -expected[layer - 1])[:count]
        assert report.dropped == sorted(plain)
        assert [score["cls_cosine"] for score in report.scores] == pytest.approx(expected, abs=1e-5)
