"""What steps lost, read in one go: sums over ranks, parts that a batch has none of, means; and how fast they went."""

import math

import torch

from litebert.train.stepper import LogWindow, StepLosses, mean_row, read_losses


def lost(step, counts, **sums) -> StepLosses:
    held = {name: torch.tensor(pair) for name, pair in sums.items()}
    return StepLosses(step, 100, counts, {"order": 0.5}, held, torch.tensor(2.0))


def test_a_part_that_a_batch_has_none_of_is_left_out_of_its_row_and_of_the_mean():
    steps = [
        lost(1, {"mlm": 10, "order": 4}, mlm=[30.0, 5.0], order=[2.0, 3.0]),
        lost(2, {"mlm": 10, "order": 0}, mlm=[50.0, 1.0], order=[0.0, 0.0]),
    ]
    rows = read_losses(steps, list)
    assert rows[0] == {
        "mlm_loss": 3.0,
        "mlm_accuracy": 0.5,
        "order_loss": 0.5,
        "order_accuracy": 0.75,
        "loss": 3.25,
        "gradient_norm": 2.0,
    }
    assert "order_loss" not in rows[1] and rows[1]["loss"] == 5.0
    mean = mean_row(rows)
    assert mean["mlm_loss"] == 4.0 and mean["order_loss"] == 0.5 and mean["order_accuracy"] == 0.75


def test_ranks_are_summed_and_regression_has_no_accuracy():
    steps = [lost(1, {"score": 8}, score=[4.0, math.nan])]
    [row] = read_losses(steps, lambda numbers: [2 * number for number in numbers])
    assert row["score_loss"] == 1.0 and "score_accuracy" not in row


def test_speed_is_of_the_time_since_the_window_began(monkeypatch):
    steps = [lost(number, {"mlm": 1}, mlm=[1.0, 1.0]) for number in (1, 2)]  # of 100 tokens each
    monkeypatch.setattr("litebert.train.stepper.time.monotonic", lambda: 14.0)
    window = LogWindow(steps, waited=1.0, begun=10.0)
    assert window.speed(5.0) == {"tokens_per_second": 50.0, "waiting": 0.25}  # whose arithmetic is not known
    window.flops = 8.0
    assert window.speed(5.0)["mfu"] == 0.4
