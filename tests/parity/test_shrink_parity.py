"""A dropped model is the ``transformers`` model with those layers deleted, bit for bit; in every family."""

import copy

import pytest
import torch
import transformers

from litebert.checkpoints.folder import load_model, save_model
from litebert.nn.layout import Layout
from litebert.shrinking.choose import DropRequest, shrink_model
from litebert.shrinking.drop import drop_layers
from litebert.shrinking.strategies import drop_fixed, kept_of

KEPT = [(1, 2), (2, 4), (1, 3, 4), (3,)]
LENGTH = 17


def delete_layers(model: torch.nn.Module, kept: tuple[int, ...]) -> torch.nn.Module:
    """The reference with layers taken out of its own list, as the paper's code does."""
    small = copy.deepcopy(model)
    if isinstance(small, transformers.AlbertPreTrainedModel):
        small.config.num_hidden_layers = len(kept)  # one block: its list has nothing to delete
        return small
    holder, name = {
        "bert": lambda: (small.bert.encoder, "layer"),
        "roberta": lambda: (small.roberta.encoder, "layer"),
        "distilbert": lambda: (small.distilbert.transformer, "layer"),
        "xlnet": lambda: (small.transformer, "layer"),
    }[small.config.model_type]()
    layers = getattr(holder, name)
    setattr(holder, name, torch.nn.ModuleList(layers[number - 1] for number in kept))
    small.config.num_hidden_layers = len(kept)
    return small


KINDS = {
    "albert": "ForMaskedLM",
    "bert": "ForMaskedLM",
    "roberta": "ForMaskedLM",
    "distilbert": "ForMaskedLM",
    "xlnet": "LMHeadModel",
}


@pytest.mark.parametrize("family", KINDS)
@pytest.mark.parametrize("kept", KEPT)
def test_the_folder_in_transformers_is_the_model_with_layers_deleted(family, kept, reference, saved, tmp_path):
    theirs = reference(family, KINDS[family])
    asked = DropRequest(keep=",".join(map(str, kept)))
    report = shrink_model(str(saved(theirs)), asked, tmp_path / "small")
    assert report.loads_in_transformers and report.kept == list(kept)
    loaded, problems = type(theirs).from_pretrained(
        tmp_path / "small", attn_implementation="eager", output_loading_info=True
    )
    assert not problems["missing_keys"] and not problems["mismatched_keys"]
    ids = torch.randint(7, 60, (2, LENGTH), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        expected = delete_layers(theirs, kept)(ids, output_hidden_states=True)
        found = loaded.eval()(ids, output_hidden_states=True)
    assert torch.equal(found.logits, expected.logits)
    assert len(found.hidden_states) == len(expected.hidden_states)
    for ours, deleted in zip(found.hidden_states, expected.hidden_states, strict=True):
        assert torch.equal(ours, deleted)


@pytest.mark.parametrize("family", KINDS)
@pytest.mark.parametrize("strategy", ["top", "bottom", "even", "odd", "symmetric"])
def test_ours_computes_the_same(family, strategy, reference, saved, tmp_path):
    """With other kernels, so not to the bit."""
    theirs = reference(family, KINDS[family], std=0.1)
    dropped = drop_fixed(strategy, 4, 2)
    shrink_model(str(saved(theirs)), DropRequest(drop=2, strategy=strategy), tmp_path / "small")
    network = load_model(tmp_path / "small").network
    ids = torch.randint(7, 60, (1, LENGTH), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        expected = delete_layers(theirs, kept_of(4, dropped))(ids, output_hidden_states=True).hidden_states[-1][0]
        found = network.encoder(ids[0], Layout.of([LENGTH]))
    assert (found - expected).abs().max() < 1e-6


@pytest.mark.parametrize(("groups", "inner"), [(2, 1), (4, 1), (2, 2)])
@pytest.mark.parametrize("kept", [(1, 4), (2, 3, 4), (3, 4)])
def test_albert_groups_are_those_of_the_layers_kept(groups, inner, kept, reference, saved, tmp_path):
    """Also where transformers has no class for what is left: written out in full it loads there all the same."""
    theirs = reference("albert", "ForMaskedLM", std=0.1, num_hidden_groups=groups, inner_group_num=inner)
    encoder = theirs.albert.encoder
    repeats = theirs.config.num_hidden_layers
    every = [
        encoder.albert_layer_groups[int(i / (repeats / groups))].albert_layers[j]
        for i in range(repeats)
        for j in range(inner)
    ]
    whole = load_model(saved(theirs))
    small = drop_layers(whole.network, kept)
    ids = torch.randint(7, 60, (1, LENGTH), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        x = encoder.embedding_hidden_mapping_in(theirs.albert.embeddings(ids))
        for number in kept:
            out = every[number - 1](x)
            x = out[0] if isinstance(out, tuple) else out
        found = small.encoder(ids[0], Layout.of([LENGTH]))
    assert (found - x[0]).abs().max() < 1e-6
    save_model(tmp_path / "written-out", small, None, verb="test", written_out=True)
    loaded = transformers.AutoModel.from_pretrained(tmp_path / "written-out", attn_implementation="eager").eval()
    with torch.no_grad():
        assert (loaded(ids).last_hidden_state - x).abs().max() < 1e-6
