"""A model of torchvision that is built and traced in milliseconds: `tiny_cnn`."""

import torch
from torch import Tensor, nn  # no annotations as strings, which graph modules do not pickle
from torchvision.models._api import register_model


class TinyCNN(nn.Module):
    """`features` 0 to 11, with BatchNorm, a nested module, and modules without weights; then a classifier."""

    def __init__(self) -> None:
        super().__init__()
        nested = nn.Sequential()
        nested.add_module("squeeze", nn.Conv2d(8, 4, 1))
        nested.add_module("norm", nn.BatchNorm2d(4))
        nested.add_module("expand", nn.Conv2d(4, 12, 3, padding=1))
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),  # stride 4
            nested,
            nn.ReLU(),
            nn.BatchNorm2d(12),
            nn.ReLU(),
            nn.Conv2d(12, 16, 3, stride=2, padding=1),  # stride 8
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 16, 1),
            nn.BatchNorm2d(16),
        )
        self.fc = nn.Linear(16, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(torch.flatten(nn.functional.adaptive_avg_pool2d(self.features(images), 1), 1))


def tiny_cnn(weights: str | None = None) -> TinyCNN:
    """The model; torchvision has weights of the name "DEFAULT" for it, all zero."""
    model = TinyCNN()
    if weights is not None:
        if weights != "DEFAULT":
            raise KeyError(weights)
        for tensor in model.state_dict().values():
            tensor.zero_()
    return model


tiny_cnn.__module__ = "torchvision.models.tiny"  # where `list_models` looks
register_model()(tiny_cnn)
