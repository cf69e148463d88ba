"""Checkpoints in and out: the same logits, exact round trips, any plan written for transformers."""

import json

import pytest
import torch
import transformers

from litebert.checkpoints.folder import load_model, save_model
from litebert.families import FAMILIES
from litebert.nn.config import family_config
from litebert.nn.layout import Layout
from litebert.nn.network import HeadsConfig, Network, NetworkConfig

CLOSE = 2e-5
KINDS = {
    "albert": ["Model", "ForPreTraining", "ForMaskedLM"],
    "bert": ["Model", "ForPreTraining", "ForMaskedLM", "ForNextSentencePrediction"],
    "roberta": ["Model", "ForMaskedLM"],
    "distilbert": ["Model", "ForMaskedLM"],
    "electra": ["Model", "ForPreTraining", "ForMaskedLM"],
    "xlnet": ["Model", "LMHeadModel"],
}
TASKS = ["ForSequenceClassification", "ForMultipleChoice", "ForQuestionAnswering"]


def kind_for(family: str, task: str) -> str:
    return "ForQuestionAnsweringSimple" if (family, task) == ("xlnet", "ForQuestionAnswering") else task


EVERY = [(f, kind_for(f, kind)) for f in FAMILIES for kind in KINDS[f] + TASKS]
LENGTHS = [5, 9]


def inputs(family: str):
    torch.manual_seed(1)
    ids = [torch.randint(7, 60, (n,)) for n in LENGTHS]
    segments = [(torch.arange(n) >= n // 2).long() if FAMILIES[family].segments else None for n in LENGTHS]
    return ids, segments


def our_logits(network: Network, family: str) -> dict[str, list[torch.Tensor]]:
    """The logits of every head, a list with one tensor a sequence."""
    ids, segments = inputs(family)
    layout = Layout.of(LENGTHS)
    kinds = None if segments[0] is None else torch.cat(segments)
    states = network.encoder(torch.cat(ids), layout, kinds)
    pooled = network.pooled(states, layout)
    logits = {}
    for name, head in network.heads.items():
        if name == "masked_lm":
            logits[name] = list(network.masked_lm(states, torch.arange(sum(LENGTHS))).split(LENGTHS))
        elif name == "replaced":
            logits[name] = list(head(states).split(LENGTHS))
        elif name == "span":
            logits[name] = [
                torch.stack(x, -1) for x in zip(*(part.split(LENGTHS) for part in head(states)), strict=True)
            ]
        elif name == "choice":
            logits[name] = list(head(pooled, 1))
        else:
            logits[name] = list(head(pooled))
    return logits


def their_logits(model, family: str) -> dict[str, list[torch.Tensor]]:
    """The same from a ``transformers`` model, each sequence alone."""
    found: dict[str, list[torch.Tensor]] = {}
    for ids, segments in zip(*inputs(family), strict=True):
        extra = {} if segments is None else {"token_type_ids": segments[None]}
        choice = type(model).__name__.endswith("ForMultipleChoice")
        if choice:
            extra = {name: value[None] for name, value in extra.items()}
        out = model(ids[None, None] if choice else ids[None], **extra)
        parts = {
            "masked_lm": out.get("prediction_logits"),
            "order": out.get("sop_logits", out.get("seq_relationship_logits")),
        }
        if "start_logits" in out:
            parts["span"] = torch.stack([out.start_logits, out.end_logits], -1)
        elif "logits" in out:
            parts[head_of(model)] = out.logits
        for name, value in parts.items():
            if value is not None:
                found.setdefault(name, []).append(value[0])
    return found


def head_of(model) -> str:
    name = type(model).__name__
    if name.endswith("ForSequenceClassification"):
        return "classify"
    if name.endswith("ForMultipleChoice"):
        return "choice"
    if name == "ElectraForPreTraining":
        return "replaced"
    return "order" if name.endswith("ForNextSentencePrediction") else "masked_lm"


def same(a: dict[str, list[torch.Tensor]], b: dict[str, list[torch.Tensor]]) -> None:
    assert set(a) == set(b)
    for name in a:
        for x, y in zip(a[name], b[name], strict=True):
            assert x.shape == y.shape
            assert (x - y).abs().max().item() < CLOSE, name


@pytest.mark.parametrize(("family", "kind"), EVERY)
def test_heads_and_exact_round_trip(family, kind, reference, saved, tmp_path):
    changes = {"num_labels": 3} if kind == "ForSequenceClassification" else {}
    theirs = reference(family, kind, **changes)
    first = load_model(saved(theirs))
    with torch.no_grad():
        if kind != "Model":
            same(our_logits(first.network, family), their_logits(theirs, family))
    save_model(tmp_path / "ours", first.network, None, verb="test")
    again, report = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"]
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    second = load_model(tmp_path / "ours")
    assert second.network.config.encoder == first.network.config.encoder
    assert set(second.network.config.heads.names) == set(first.network.config.heads.names)
    for name, tensor in first.network.state_dict().items():
        assert torch.equal(second.network.state_dict()[name], tensor), name


def test_a_folder_is_named_for_the_class_that_holds_it(reference, saved, tmp_path):
    loaded = load_model(saved(reference("albert", "ForPreTraining")))
    save_model(tmp_path / "ours", loaded.network, None, verb="test")
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["architectures"] == ["AlbertForPreTraining"]
    assert type(transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "ours")).__name__ == "AlbertForMaskedLM"


def test_replaced_head_of_an_albert_is_kept_beside_what_transformers_reads(tmp_path):
    heads = HeadsConfig(names=("masked_lm", "order", "replaced"))
    network = Network(NetworkConfig(encoder=family_config({"family": "albert", **SMALL}), heads=heads))
    save_model(tmp_path / "ours", network, None, verb="test")
    again = load_model(tmp_path / "ours")
    assert not again.notes and set(again.network.config.heads.names) == set(heads.names)
    for name, tensor in network.state_dict().items():
        assert torch.equal(again.network.state_dict()[name], tensor), name
    theirs, report = transformers.AlbertForPreTraining.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not report["missing_keys"]
    assert all(name.startswith("discriminator_predictions.") for name in report["unexpected_keys"])
    assert torch.equal(theirs.albert.embeddings.word_embeddings.weight, network.encoder.embeddings.token.weight)


PLANS = {
    "attention": {"share": "attention"},
    "ffn": {"share": "ffn"},
    "none": {"share": "none"},
    "groups of two": {"num_groups": 2, "layers_per_group": 2},
    "custom": {"custom_plan": [[0, 1], [1, 0], [0, 0], [1, 1]]},
    "no projection": {"embedding_width": 32},
}
SMALL = {
    "vocab_size": 60,
    "width": 32,
    "embedding_width": 16,
    "num_layers": 4,
    "num_heads": 4,
    "feed_forward_width": 64,
}


@pytest.mark.parametrize("plan", list(PLANS))
@pytest.mark.parametrize("family", ["albert", "bert", "electra"])
def test_any_plan_is_kept_and_can_be_written_out_for_transformers(plan, family, tmp_path):
    fields = {"family": family, **SMALL, **PLANS[plan]}
    if family == "bert":
        fields["embedding_width"] = fields["width"]
    fields.setdefault("share", "all")
    heads = ("masked_lm",) if family == "electra" else ("masked_lm", "order")
    config = NetworkConfig(encoder=family_config(fields), heads=HeadsConfig(names=heads))
    torch.manual_seed(0)
    network = Network(config).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.3)
        expected = our_logits(network, family)
    save_model(tmp_path / "kept", network, None, verb="test")
    kept = load_model(tmp_path / "kept").network
    assert kept.config.encoder.plan == config.encoder.plan
    for name, tensor in network.state_dict().items():
        assert torch.equal(kept.state_dict()[name], tensor)
    save_model(tmp_path / "full", network, None, verb="test", written_out=True)
    architecture = json.loads((tmp_path / "full" / "config.json").read_text())["architectures"][0]
    theirs = getattr(transformers, architecture).from_pretrained(tmp_path / "full").eval()
    with torch.no_grad():
        same(expected, their_logits(theirs, family))


@pytest.mark.parametrize("how", ["shards", "pickle"])
def test_other_weight_files(how, reference, saved, tmp_path):
    theirs = reference("bert", "ForPreTraining")
    if how == "shards":
        folder = saved(theirs, max_shard_size="20KB")
        assert (folder / "model.safetensors.index.json").exists()
    else:
        folder = saved(theirs)
        (folder / "model.safetensors").unlink()
        torch.save(theirs.state_dict(), folder / "pytorch_model.bin")
    loaded = load_model(folder)
    assert not loaded.notes
    with torch.no_grad():
        same(our_logits(loaded.network, "bert"), their_logits(theirs, "bert"))


def test_what_a_checkpoint_lacks_is_new_and_said(reference, saved):
    folder = saved(reference("bert", "ForMaskedLM"))
    loaded = load_model(folder)
    assert loaded.notes == ["reference has no pooler weights: they are new"]
    loaded = load_model(folder, heads=HeadsConfig(names=("classify",), labels=("a", "b", "c")))
    assert "reference has no classify weights: they are new" in loaded.notes
    assert loaded.network.heads["classify"].linear.weight.shape == (3, 32)
    assert loaded.network.heads["classify"].linear.weight.std() > 0


@pytest.mark.parametrize("family", ["bert", "electra"])
def test_untied_tables_are_kept(family, reference, saved, tmp_path):
    theirs = reference(family, "ForMaskedLM", tie_word_embeddings=False)
    loaded = load_model(saved(theirs))
    with torch.no_grad():
        same(our_logits(loaded.network, family), their_logits(theirs, family))
    save_model(tmp_path / "ours", loaded.network, None, verb="test")
    again = type(theirs).from_pretrained(tmp_path / "ours")
    assert torch.equal(again.get_output_embeddings().weight, theirs.get_output_embeddings().weight)


def test_old_norm_names(reference, saved):
    theirs = reference("bert", "ForMaskedLM")
    folder = saved(theirs)
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in theirs.state_dict().items()
    }
    (folder / "model.safetensors").unlink()
    assert sum(name.endswith((".gamma", ".beta")) for name in old) == 2 + 4 * theirs.config.num_hidden_layers + 2
    torch.save(old, folder / "pytorch_model.bin")
    ours = load_model(folder).network
    assert torch.equal(ours.encoder.embeddings.norm.weight, theirs.bert.embeddings.LayerNorm.weight)
    with torch.no_grad():
        same(our_logits(ours, "bert"), their_logits(theirs, "bert"))
