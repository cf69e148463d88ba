"""How hard the order loss pulls at the layers of a model, next to masked words, and how alike first tokens are.

    python examples/order_pull.py litebert-en --store STORE
    python examples/order_pull.py RUN/model --store STORE --fresh

Gradients at the states of the last layer, of each loss by itself, over a few batches of training text. ``--fresh`` puts
a new pooler and a new order head on the model first. A model whose order stays at chance has a pull near zero: nothing
tells its layers about order any more.
"""

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from litebert.checkpoints.folder import load_model
from litebert.corpus.batches import Batches
from litebert.corpus.settings import BatchSettings
from litebert.corpus.store import Store
from litebert.errors import InputError
from litebert.nn.layout import Layout
from litebert.pretraining.initial import check_vocabulary
from litebert.pretraining.objective import LOGIT_CHUNK, Pretraining
from litebert.text.tokenizer_files import read_tokenizer

CPU = torch.device("cpu")
STD = 0.02  # of new weights


def main() -> None:
    try:
        show(_arguments())
    except InputError as error:
        sys.exit(f"order_pull: {error}")


def show(args: argparse.Namespace) -> None:
    """A row for each batch."""
    loaded, store = load_model(args.model), Store.open(args.store)
    network = loaded.network
    if not {"masked_lm", "order"} <= set(network.heads):
        raise InputError(f"{args.model} has no masked-LM head and order head; name a pretrained ALBERT or BERT")
    ours = read_tokenizer(store.tokenizer_folder, network.config.encoder.family)
    check_vocabulary(loaded.tokenizer, ours, args.model, str(args.store))
    if args.fresh:
        torch.manual_seed(0)
        for layer in (network.pooler.dense, network.heads["order"].linear):
            nn.init.normal_(layer.weight, std=STD)
            nn.init.zeros_(layer.bias)
    settings = BatchSettings(length=args.length, budget=args.tokens, order=args.order, masking="plain", rate=0.3)
    batches = Batches(store, "train", settings)
    objective = Pretraining(args.length, LOGIT_CHUNK)
    print("batch  pairs in order, not  cosine of first tokens  pull of words  of order  pooler's gradient")
    for index in range(args.batches):
        batch = batches.batch(0, index)
        counts, tensors = objective.counts(batch), objective.tensors(batch, CPU)
        layout = Layout(tensors["starts"], tensors["positions"], args.length)
        states = network.encoder(tensors["ids"], layout, tensors["segments"])
        parts = objective.heads(network, states, layout, tensors)
        words, order = (_size(parts[name].loss / counts[name], states) for name in ("mlm", "order"))
        pooler = _size(parts["order"].loss / counts["order"], network.pooler.dense.weight)
        answers = [int((batch.order_labels == label).sum()) for label in (0, 1)]
        alike = _alike(states[layout.first].detach())
        print(f"{index:5}  {answers[0]:9}, {answers[1]:6}  {alike:22.3f}  {words:13.4f}  {order:8.4f}  {pooler:17.4f}")


def _size(loss: Tensor, of: Tensor) -> float:
    return float(torch.autograd.grad(loss, of, retain_graph=True)[0].norm())


def _alike(vectors: Tensor) -> float:
    """The mean cosine of two different ones."""
    directions = normalize(vectors, dim=-1)
    count = len(directions)
    return float(((directions @ directions.T).sum() - count) / (count * (count - 1)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model with a masked-LM head and an order head")
    parser.add_argument("--store", type=Path, required=True, help="a token store made with the model's tokenizer")
    parser.add_argument("--fresh", action="store_true", help="a new pooler and a new order head")
    parser.add_argument("--order", choices=("sop", "nsp"), default="sop")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=4096, help="of a batch")
    parser.add_argument("--batches", type=int, default=4)
    return parser.parse_args()


if __name__ == "__main__":
    main()
