"""Tiny random models of every family, made by ``transformers`` with all weights redrawn large enough to matter."""

from pathlib import Path

import pytest
import torch
import transformers

SIZES = {
    "albert": {
        "embedding_size": 16,
        "hidden_size": 32,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "hidden_act": "gelu_new",
    },
    "bert": {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 64},
    "roberta": {
        "hidden_size": 32,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 514,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
    },
    "distilbert": {"dim": 32, "n_layers": 4, "n_heads": 4, "hidden_dim": 64},
    "xlnet": {"d_model": 32, "n_layer": 4, "n_head": 4, "d_inner": 64},
}
CONFIGS = {
    "albert": transformers.AlbertConfig,
    "bert": transformers.BertConfig,
    "roberta": transformers.RobertaConfig,
    "distilbert": transformers.DistilBertConfig,
    "xlnet": transformers.XLNetConfig,
}
VOCAB = 60


def reference(family: str, name: str, std: float = 0.3, **changes: object) -> torch.nn.Module:
    """A ``transformers`` model of class ``name`` with every weight drawn anew (norms and biases too)."""
    config = CONFIGS[family](vocab_size=VOCAB, **{**SIZES[family], **changes})
    torch.manual_seed(0)
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=std)
    return model


@pytest.fixture
def saved(tmp_path: Path):
    """Save a reference model and give back its folder."""

    def save(model: torch.nn.Module, **how: object) -> Path:
        model.save_pretrained(tmp_path / "reference", **how)
        return tmp_path / "reference"

    return save
