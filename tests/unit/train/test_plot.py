"""The picture of a run, looked at as numbers: what is drawn, from which rows."""

import numpy as np
import pytest
from matplotlib import image
from matplotlib.axes import Axes

from litebert.train.metrics import MetricsFile
from litebert.train.plot import _smoothed, draw_run


@pytest.fixture
def drawn(monkeypatch):
    """Labels and values of all lines that are drawn."""
    lines, plot, level = {}, Axes.plot, Axes.axhline

    def record(self, x, y, *form, **options):
        lines[options.get("label", f"raw {len(lines)}")] = (np.asarray(x), np.asarray(y))
        return plot(self, x, y, *form, **options)

    def record_level(self, y, **options):
        lines["level"] = y
        return level(self, y, **options)

    monkeypatch.setattr(Axes, "plot", record)
    monkeypatch.setattr(Axes, "axhline", record_level)
    return lines


def write(run, rows):
    metrics = MetricsFile(run)
    for row in rows:
        metrics.append(row)


def test_all_panels(tmp_path, drawn):
    rows = []
    for step in range(1, 301):
        rows.append({"step": step, "tokens": step * 1000, "seconds": step, "loss": 5.0, "mlm_loss": 4.0})
        rows[-1] |= {"order_loss": 1.0, "mlm_accuracy": 0.3, "rate": 1e-3 * step}
        if step % 100 == 0:
            rows.append({"step": step, "mlm_loss": 3.5, "order_accuracy": 0.75, "split": "held_out"})
    write(tmp_path, rows)
    assert draw_run(tmp_path, unigram=6.5) == tmp_path / "loss.png"
    assert [path.name for path in tmp_path.glob(".*")] == []
    picture = image.imread(tmp_path / "loss.png")
    assert picture.shape[0] > 600 and picture.shape[1] > 800 and picture[..., :3].std() > 0.05
    steps, values = drawn["masked words, held-out (3.5)"]
    assert steps.tolist() == [100, 200, 300] and values.tolist() == [3.5] * 3
    assert drawn["sentence order, held-out (75%)"][1].tolist() == [75.0] * 3
    assert drawn["level"] == 6.5
    assert np.allclose(drawn["masked words, training"][1], 30) and len(drawn["sentence order, training"][0]) == 300
    [rates] = [line[1] for name, line in drawn.items() if name.startswith("raw") and line[1].max() < 0.5]
    assert np.allclose(rates, 1e-3 * np.arange(1, 301))


@pytest.mark.parametrize(
    "rows",
    [
        [{"step": 1, "loss": 2.0}],
        [{"step": 1, "loss": 0.0}, {"step": 2, "loss": 0.0}],
        [{"step": 1, "loss": 2.0}, {"step": 2, "loss": None}, {"step": 3, "loss": 1e30}],
        [{"step": 1, "loss": 2.0, "split": "held_out"}],
        [{"loss": 2.0}, {"step": 1, "loss": 2.0, "accuracy": None}],
    ],
)
def test_thin_runs_are_drawn_too(tmp_path, rows):
    write(tmp_path, rows)
    assert draw_run(tmp_path).stat().st_size > 5000


def test_an_explosion_does_not_flatten_the_rest(tmp_path, monkeypatch):
    limits, set_limits = [], Axes.set_ylim
    monkeypatch.setattr(Axes, "set_ylim", lambda self, *a, **k: limits.append(a) or set_limits(self, *a, **k))
    write(tmp_path, [{"step": step, "loss": 4.0 if step < 99 else 1e6} for step in range(100)])
    draw_run(tmp_path)
    assert 8 <= limits[0][1] < 10


@pytest.mark.parametrize("rows", [[], [{"step": 1}], [{"step": 1, "loss": None}]])
def test_nothing_to_draw(tmp_path, rows):
    write(tmp_path, rows)
    assert draw_run(tmp_path) is None and not (tmp_path / "loss.png").exists()


@pytest.mark.parametrize("size", [0, 1, 7, 1000])
def test_smoothing_leaves_straight_lines_and_ends_alone_and_lessens_noise(size):
    line = np.linspace(5, 1, size)
    assert np.allclose(_smoothed(line), line)
    noise = line + np.random.default_rng(0).normal(size=size)
    smooth = _smoothed(noise)
    assert smooth.shape == line.shape and (size < 1000 or (smooth - line).std() < 0.4)
    assert size == 0 or (smooth[0] == pytest.approx(noise[0]) and smooth[-1] == pytest.approx(noise[-1]))
