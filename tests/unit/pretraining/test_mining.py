"""What is chosen from candidates: the hardest, as many as asked for, whole words, inputs with their masks; draws."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from toy_stores import write_store

from litebert.corpus.batches import Batches, original_ids
from litebert.corpus.settings import BatchSettings
from litebert.errors import InputError
from litebert.pretraining.mining import Mining, TokenLosses, hardest, inclusion, weighted
from litebert.pretraining.objective import Pretraining, batch_flops
from litebert.pretraining.recipe import Selection, read_recipe
from litebert.train.objective import Learner

IGNORED = -100


def test_hardest_fit_and_fill():
    scores, sizes = np.array([1.0, 5.0, 4.0, 3.0, 2.0]), np.array([1, 4, 3, 3, 2])
    assert hardest(scores, sizes, 7).tolist() == [1, 2]
    assert hardest(scores, sizes, 9).tolist() == [1, 2, 4]  # the fourth does not fit, the fifth does
    assert hardest(scores, sizes, 100).tolist() == [0, 1, 2, 3, 4]
    assert hardest(scores, sizes, 0).tolist() == []


def test_chances_are_proportional_and_at_most_one():
    sizes = np.array([1, 2, 1, 1, 3])
    chances = inclusion(np.array([1.0, 2.0, 100.0, 1.0, 0.0]), sizes, 4)
    assert chances[2] == 1 and (chances * sizes).sum() == pytest.approx(4)
    assert chances[1] == pytest.approx(2 * chances[0]) and chances[4] == 0


def test_weights_undo_the_choice_on_average():
    random = np.random.default_rng(1)
    scores, sizes = random.exponential(size=40), random.integers(1, 4, 40)
    total, values = int(sizes.sum()) // 2, random.normal(size=40)
    found = []
    for seed in range(4000):
        units, weights = weighted(scores, sizes, total, 1 << 30, np.random.default_rng(seed))
        found.append([sizes[units].sum(), (weights * values[units]).sum()])
    tokens, sums = np.array(found).T
    assert tokens.mean() == pytest.approx(total, abs=0.3)
    assert sums.mean() == pytest.approx(total / sizes.sum() * values.sum(), abs=4 * sums.std() / len(sums) ** 0.5)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Random words of one to three tokens, in documents of several sentences."""
    random = np.random.default_rng(0)

    def sentence():
        sizes = random.integers(1, 4, 8)
        starts = [int(place == 0) for size in sizes for place in range(size)]
        return random.integers(5, 60, len(starts)).tolist(), starts

    documents = [[sentence() for _ in range(20)] for _ in range(60)]
    return write_store(tmp_path_factory.mktemp("store"), {"train": documents}, vocab_size=60)


class Asked:
    """A network's place: what it was asked, and answers that rise with the token's id."""

    def __init__(self):
        self.ids = None

    def __call__(self, objective, tensors):
        self.ids = tensors["ids"]
        return {"mlm": (tensors["mask_targets"].float(), None)}


def mining(store, tiny, kind, *, rate=0.15, budget=512, masking="plain", **select):
    """The candidates of a toy store and what chooses from them."""
    chosen = Selection(kind=kind, discount_repeats=False, **select)
    plain = BatchSettings(length=64, budget=budget, order="sop", masking=masking, rate=rate, fixed=True)
    share = chosen.share
    wide = replace(plain, rate=rate / share) if kind == "hard-tokens" else replace(plain, budget=int(budget / share))
    source = Batches(store, "train", wide)
    choice = Mining(
        select=chosen,
        encoder=tiny,
        scoring=TokenLosses(64, 2),
        rarity=None,
        repeats=None,
        whole_words=masking != "plain",
        mask_id=source.mask_id,
        pad_id=0,
        budget=budget,
        length=64,
        room=Batches(store, "train", plain).max_masked,
        seed=0,
    )
    return source.batch(0, 0), choice


def test_the_hardest_tokens_are_masked_and_the_others_shown(store, tiny_config):
    candidates, choice = mining(store, tiny_config, "hard-tokens")
    asked = Asked()
    batch, flops = choice(asked, candidates, torch.device("cpu"))
    number, original = batch.num_masked, original_ids(candidates)
    assert number == round(candidates.num_masked / 2) and len(batch.mask_positions) == choice.room
    places, targets = candidates.mask_positions[: candidates.num_masked], candidates.mask_targets
    assert (asked.ids.numpy()[places] == choice.mask_id).all()
    kept = set(batch.mask_positions[:number].tolist())
    left_out = [place for place in places.tolist() if place not in kept]
    assert original[left_out].max() <= original[list(kept)].min()  # answers rise with the id
    assert (batch.ids[left_out] == original[left_out]).all()
    assert (batch.ids[sorted(kept)] == candidates.ids[sorted(kept)]).all()
    assert (original_ids(batch) == original).all() and (batch.mask_targets[number:] == IGNORED).all()
    assert (targets[: candidates.num_masked] == original[places]).all()
    assert flops == pytest.approx(batch_flops(tiny_config, candidates, 2) / 3)


def test_words_are_chosen_whole(store, tiny_config):
    candidates, choice = mining(store, tiny_config, "hard-tokens", masking="whole-word")
    batch, _ = choice(Asked(), candidates, torch.device("cpu"))
    chosen = np.isin(candidates.mask_positions[: candidates.num_masked], batch.mask_positions[: batch.num_masked])
    places = candidates.mask_positions[: candidates.num_masked]
    inside = (np.diff(places, prepend=-2) == 1) & (candidates.word_starts[places] == 0)
    assert inside.any() and (chosen[1:] == chosen[:-1])[inside[1:]].all()
    assert candidates.num_masked / 2 - 6 < batch.num_masked <= candidates.num_masked / 2


@pytest.mark.parametrize("draw", ["hardest", "weighted"])
def test_rows_move_with_their_masks(store, tiny_config, draw):
    candidates, choice = mining(store, tiny_config, "hard-rows", draw=draw)
    batch, _ = choice(Asked(), candidates, torch.device("cpu"))
    assert len(batch.ids) == 512 and 400 < batch.num_tokens <= 512 < candidates.num_tokens
    assert batch.starts[batch.num_sequences] == batch.num_tokens and batch.starts[-1] == 512
    assert (batch.mask_weights is None) == (draw == "hardest")
    theirs = {}
    for row in range(candidates.num_sequences):
        begin, end = candidates.starts[row : row + 2]
        inside = (candidates.mask_positions >= begin) & (candidates.mask_positions < end)
        inside &= candidates.mask_targets != IGNORED
        key = tuple(original_ids(candidates)[begin:end].tolist()), candidates.mask_positions[inside][0] - begin
        theirs[key] = candidates.mask_targets[inside], candidates.order_labels[row]
    for row in range(batch.num_sequences):
        begin, end = batch.starts[row : row + 2]
        inside = (batch.mask_positions >= begin) & (batch.mask_positions < end) & (batch.mask_targets != IGNORED)
        key = tuple(original_ids(batch)[begin:end].tolist()), batch.mask_positions[inside][0] - begin
        targets, label = theirs[key]
        assert (batch.mask_targets[inside] == targets).all() and batch.order_labels[row] == label


def test_repeated_text_counts_less(store, tiny_config):
    class OldFirst:
        def novelty(self, ids, starts):
            return np.array([0.0] * 3 + [1.0] * (len(starts) - 4))

    candidates, choice = mining(store, tiny_config, "hard-rows")
    choice = replace(choice, repeats=OldFirst(), scoring=None)
    batch, flops = choice(Asked(), candidates, torch.device("cpu"))
    first = original_ids(candidates)[: candidates.starts[3]]
    assert flops == 0 and not np.array_equal(original_ids(batch)[: len(first)], first)
    assert np.array_equal(original_ids(batch)[:20], original_ids(candidates)[candidates.starts[3] :][:20])


def test_weights_scale_losses_and_gradients(network, batch):
    """With weights of two, in chunks or not, the loss and its gradients are twice those without."""
    heavy = replace(batch, mask_weights=np.full(len(batch.mask_positions), 2.0, np.float32))
    found = []
    for chosen, chunk in ((batch, 0), (heavy, 0), (heavy, 4)):
        objective = Pretraining(32, chunk)
        network.zero_grad()
        loss, _ = Learner(network, objective)(objective.tensors(chosen, torch.device("cpu")))["mlm"]
        loss.backward()
        found.append((loss.detach(), network.encoder.embeddings.token.weight.grad.clone()))
    for loss, gradient in found[1:]:
        torch.testing.assert_close(loss, 2 * found[0][0])
        torch.testing.assert_close(gradient, 2 * found[0][1])


def test_scores_are_the_losses_at_a_depth(network, batch):
    scoring, plain = TokenLosses(32, 2), Pretraining(32, 0, 2)
    tensors = scoring.tensors(batch, torch.device("cpu"))
    losses, hits = Learner(network, scoring)(tensors)["mlm"]
    whole, right = Learner(network, plain)(tensors)["mlm"]
    torch.testing.assert_close(losses.sum(), whole)
    assert len(losses) == len(batch.mask_positions) and hits.sum() == right


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["select.kind=hard-tokens", "mask_rate=0.5"], "would mask 100% of all tokens"),
        (["select.kind=hard-rows", "objective=replaced"], "not for objective=replaced"),
        (["select.kind=hard-rows", "elastic=true"], "not for elastic"),
        (["select.share=1.0"], "select.share is 1.0 but must be between 0 and 1"),
        (["select.by=repeats", "select.discount_repeats=false"], "select.by=repeats needs"),
        (["select.kind=hard"], "select.kind"),
    ],
)
def test_settings_that_cannot_be(words, message):
    with pytest.raises(InputError, match=message):
        read_recipe("budget", words)
