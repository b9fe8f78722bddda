"""Figures in words."""

from training.evaluation.metrics import Figure


def show_figure(figure: Figure) -> str:
    """`.512 [.480, .544]`"""
    return f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"


def show_gain(figure: Figure) -> str:
    """The same with signs."""
    return f"{figure.value:+.3f} [{figure.low:+.3f}, {figure.high:+.3f}]"
