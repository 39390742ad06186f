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
