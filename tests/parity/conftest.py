"""Tiny random models of every family, made by ``transformers`` with all weights redrawn large enough to matter."""

from pathlib import Path

import pytest
import torch
import transformers

from litebert.families import FAMILIES

VOCAB = 60
LAYERS = {"num_hidden_layers": 4, "num_attention_heads": 4, "hidden_size": 32, "intermediate_size": 64}
SIZES = {
    "albert": {**LAYERS, "embedding_size": 16},
    "bert": LAYERS,
    "electra": {**LAYERS, "embedding_size": 16},
    "roberta": {**LAYERS, "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    "distilbert": {"dim": 32, "n_layers": 4, "n_heads": 4, "hidden_dim": 64},
    "xlnet": {"d_model": 32, "n_layer": 4, "n_head": 4, "d_inner": 64},
}


@pytest.fixture
def reference():
    """Make a ``transformers`` model, say ("bert", "ForMaskedLM"), with every weight drawn anew."""

    def make(family: str, kind: str = "Model", std: float = 0.3, **changes: object) -> torch.nn.Module:
        settings = {"vocab_size": VOCAB, "attn_implementation": "eager", **SIZES[family], **changes}
        config = getattr(transformers, FAMILIES[family].class_prefix + "Config")(**settings)
        torch.manual_seed(0)
        model = getattr(transformers, FAMILIES[family].class_prefix + kind)(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=std)
        return model

    return make


@pytest.fixture
def saved(tmp_path: Path):
    """Save a reference model and give back its folder."""

    def save(model: torch.nn.Module, **how: object) -> Path:
        model.save_pretrained(tmp_path / "reference", **how)
        return tmp_path / "reference"

    return save
