"""BatchNorm of an encoder that learns; freezing itself is in test_torchvision_encoder.py."""

from __future__ import annotations

import pytest
from torch import nn

from caption.core.errors import UserError
from caption.encoders import SeveralEncoders, SmallCNN
from caption.encoders.fine_tuning import batch_norm_warning


@pytest.mark.parametrize("several", [False, True])
def test_statistics_stay_in_evaluation_mode_while_the_rest_learns(several: bool):
    encoder = SeveralEncoders([SmallCNN((4, 4))]) if several else SmallCNN((4, 4))
    owner = nn.ModuleList([encoder])
    encoder.frozen_statistics = True
    for frozen in (True, False):
        encoder.freeze(frozen)
    for _ in range(2):
        modes = {isinstance(layer, nn.BatchNorm2d): layer.training for layer in encoder.modules()}
        assert modes == {True: False, False: True}
        owner.eval()
        assert not any(layer.training for layer in encoder.modules())
        owner.train()
    assert all(parameter.requires_grad for parameter in encoder.parameters())


def test_batch_norm_of_a_learning_encoder_is_warned_about():
    encoder = SmallCNN((4, 4))
    assert "--trainer.sync_batchnorm true" in str(batch_norm_warning(encoder, "cuda"))
    assert "only on GPUs" in str(batch_norm_warning(encoder, "cpu"))
    assert batch_norm_warning(nn.Conv2d(3, 4, 1), "cpu") is None
    synchronised = nn.SyncBatchNorm.convert_sync_batchnorm(encoder)
    assert batch_norm_warning(synchronised, "cuda") is None
    with pytest.raises(UserError, match=r"trainer\.sync_batchnorm"):
        batch_norm_warning(synchronised, "cpu")
