"""Plans for many GPUs: the exchange of gradients by hand, the paper's run, and what is refused."""

import pytest

import litebert
from litebert.planning.nodes import LINK, NODE_LINK, TURN_SECONDS, Links


def test_the_exchange_by_hand():
    alone = Links(gpus=1)
    assert alone.exchange_seconds(1e9) == 0
    one_node = Links(gpus=8, node_link=100e9)
    assert one_node.exchange_seconds(8e6) == pytest.approx(2 * 7 / 8 * 8e6 / 100e9 + 14 * TURN_SECONDS)
    nodes = Links(gpus=64, nodes=8, node_link=100e9, link=10e9)
    inside, between = 2 * 7 / 8 * 80e6 / 100e9, 2 * 7 / 8 * 80e6 / 10e9
    assert nodes.exchange_seconds(80e6) == pytest.approx(inside + between + 4 * 28 * TURN_SECONDS)  # in four buckets


def test_the_papers_run_on_many_gpus():
    how = {"device": "h200", "compile": True, "tokens": 16_384, "nodes": 8, "price": 2.0}
    albert = litebert.plan("albert-base", gpus=64, **how).paper_run
    bert = litebert.plan("bert-base", gpus=64, **how).paper_run
    assert albert.gradient_bytes == 4 * litebert.plan("albert-base", device="h200").parameters.with_heads
    assert 9 < bert.gradient_bytes / albert.gradient_bytes < 10  # the paper's argument for shared weights
    assert albert.communication_share < 0.1 < 0.3 < bert.communication_share
    assert albert.tokens_per_gpu == 32_768
    hours = 125_000 * (albert.arithmetic_seconds + albert.communication_seconds) / 3600
    assert albert.gpu_hours == pytest.approx(64 * hours) and albert.cost == pytest.approx(128 * hours)
    assert albert.links == Links(gpus=64, nodes=8, node_link=NODE_LINK * 1e9, link=LINK * 1e9)
    # Twice the GPUs: half the arithmetic, as much to send. Where a share is less than a pass, passes are smaller.
    more = litebert.plan("albert-base", gpus=128, **how).paper_run
    assert more.arithmetic_seconds == pytest.approx(albert.arithmetic_seconds / 2)
    most = litebert.plan("albert-base", gpus=4096, **how).paper_run
    assert most.tokens_per_gpu == 512 and most.arithmetic_seconds > albert.arithmetic_seconds / 64


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"gpus": 10, "nodes": 4}, "gpus is 10, which 4 nodes cannot share equally"),
        ({"nodes": 4}, "gpus is missing"),
        ({"gpus": 2**22}, "gpus is 4194304, more than the 2,097,152 tokens"),
        ({"gpus": 2, "purpose": "infer"}, "gpus is 2, but infer is planned for one"),
        ({"gpus": 2, "link": 0.0}, "link is 0 but must be a number"),
    ],
)
def test_what_cannot_be_planned(how, sentence):
    with pytest.raises(litebert.InputError, match=sentence):
        litebert.plan("albert-tiny", device="h200", **how)


def test_the_command_shows_the_rows_and_what_is_assumed(litebert):
    code, out, _ = litebert("plan", "albert-tiny", "--device", "h200", "--gpus", "16", "--nodes", "2", "--price", "2.5")
    assert code == 0
    assert "the paper's run on 16 devices" in out and "share of communication" in out and "cost" in out
    assert "450 GB/s within a node" in out and "50 GB/s between" in out
