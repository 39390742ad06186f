"""Evaluation mode within a context."""

from __future__ import annotations

import pytest
from torch import nn

from caption.core.runtime.eval_mode import eval_mode


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_comes_back_even_after_an_error(training: bool) -> None:
    module = nn.Sequential(nn.Dropout()).train(training)
    with pytest.raises(KeyError), eval_mode(module):  # noqa: PT012
        assert not any(part.training for part in module.modules())
        raise KeyError
    assert all(part.training == training for part in module.modules())


def test_each_module_gets_its_own_mode_back() -> None:
    model = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2).eval())
    with pytest.raises(KeyError), eval_mode(model):  # noqa: PT012
        assert not model[0].training
        raise KeyError
    assert [module.training for module in model.modules()] == [True, True, False]
