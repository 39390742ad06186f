"""Several encoders of one image."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers import tiny_torchvision  # noqa: F401  (registers tiny_cnn)

from caption.core.errors import UserError
from caption.encoders import SeveralEncoders, SmallCNN, TorchvisionEncoder


def test_views_are_those_of_each_encoder_in_order():
    torch.manual_seed(0)
    tiny = TorchvisionEncoder("tiny_cnn", ["features.5", "features.11"])
    encoder = SeveralEncoders([SmallCNN((4, 4, 6)), tiny]).eval()
    images = torch.randint(0, 256, (2, 3, 64, 64), generator=torch.Generator().manual_seed(0)).byte()
    with torch.no_grad():
        views = encoder(images)
        expected = [view for part in encoder.encoders for view in part(images)]
    assert len(views) == 3
    assert tuple(view.vectors.shape[-1] for view in views) == encoder.region_sizes == (6, 12, 16)
    for one, other in zip(views, expected, strict=True):
        assert one.grid == other.grid
        torch.testing.assert_close(one.vectors, other.vectors)


def test_freezing_reaches_each_encoder_and_one_that_is_partly_fine_tuned_stays_so():
    partly = TorchvisionEncoder("tiny_cnn", "features.11", finetune_from="features.10")
    encoder = SeveralEncoders([SmallCNN((4, 6)), partly])
    encoder.freeze()
    encoder.train()
    assert not any(module.training for module in encoder.modules())
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    assert all(part.frozen for part in encoder.encoders)
    encoder.freeze(False)
    assert encoder.training
    assert all(module.training for module in encoder.encoders[0].modules())
    assert all(parameter.requires_grad for parameter in encoder.encoders[0].parameters())
    learning = {name for name, parameter in partly.named_parameters() if parameter.requires_grad}
    assert learning
    assert all("features.1" in name for name in learning)
    assert encoder.eval().encoders[0].training is False


def test_pretrained_weights_of_each_are_loaded(tmp_path: Path):
    torch.manual_seed(1)
    source = TorchvisionEncoder("tiny_cnn", "features.3")
    torch.save(source.trunk.state_dict(), tmp_path / "tiny.pth")
    tiny = TorchvisionEncoder("tiny_cnn", "features.3", weights=str(tmp_path / "tiny.pth"))
    SeveralEncoders([SmallCNN((4, 6)), tiny]).load_pretrained()
    assert all(torch.equal(tensor, tiny.state_dict()[name]) for name, tensor in source.state_dict().items())


def test_no_encoder_is_refused():
    with pytest.raises(UserError, match="encoders is an empty list"):
        SeveralEncoders([])
