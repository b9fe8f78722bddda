"""The plot of drift: what it draws lies within its panel."""

from matplotlib.figure import Figure

from training.reporting.drift_page import _draw_panel


def test_a_panel_holds_the_whole_interval() -> None:
    points = [
        {
            "at": 300.0 * n,
            "value": 0.01,
            "low": -0.2,
            "high": 0.4,
            "threshold": 0.02,
            "fired": False,
        }
        for n in range(3)
    ]
    axes = Figure().subplots()
    _draw_panel(axes, "Embeddings of what came", points)
    low, high = axes.get_ylim()
    assert low < -0.2
    assert high > 0.4
