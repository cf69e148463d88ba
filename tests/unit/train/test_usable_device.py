"""The device a person asks for is there, or a sentence says what to do."""

import pytest
import torch

from litebert.errors import InputError
from litebert.system import usable_device


@pytest.mark.parametrize("there", [True, False])
def test_unasked_it_is_a_gpu_where_there_is_one(there, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    assert usable_device() == ("cuda" if there else "cpu")
    assert usable_device("cpu") == "cpu"


@pytest.mark.parametrize(("asked", "said"), [("gpu", "must be auto, cpu or cuda"), ("cuda", "use cpu")])
def test_a_device_that_is_not_there(asked, said, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=said):
        usable_device(asked)
