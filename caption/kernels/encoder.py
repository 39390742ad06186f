"""An encoder on a CPU without gradients: BatchNorm is folded into convolutions, and activations are computed with them.

The encoder is traced once. In its graph, each convolution with the BatchNorm, sum and activation that follow it becomes
one call (`caption.kernels.convolution`). The encoder's weights are folded again for each batch, which takes a tenth of
the time of an image; a stored copy could be out of date.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from threading import Lock, get_ident
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_weights

from caption.encoders.base import Encoder
from caption.kernels import convolution
from caption.kernels.convolution import Geometry
from caption.kernels.exchange import plain_class

ACTIVATIONS: dict[object, str] = {
    nn.Identity: "none",
    nn.ReLU: "relu",
    nn.ReLU6: "hardtanh",
    nn.SiLU: "swish",
    nn.Hardswish: "hardswish",
    functional.relu: "relu",
    torch.relu: "relu",
}
"""The names in `convolution.ACTIVATIONS` of layers and functions."""

Maps = Tensor | tuple[Tensor, ...]
Weights = list[tuple[Tensor, Tensor | None]]
"""Weight and bias of each fused convolution."""

PIXELS = 2**18
"""Pixels of the images that are encoded at once, at least one image per thread. The feature maps of more would not fit
into the cache, and their memory would be returned to the system after every layer."""

_forms: WeakKeyDictionary[nn.Module, tuple[list[nn.Module], InferenceForm | None]] = WeakKeyDictionary()
"""For each encoder: its layers when it was traced, and its graph, or None if it cannot be traced."""
_tracing = Lock()


class FoldedEncoder(Encoder):
    """`Encoder` that computes feature maps by `inference_form`, a few images at a time, if no gradients are needed."""

    def feature_maps(self, images: Tensor) -> tuple[Tensor, ...]:
        if not images.is_cpu or torch.is_grad_enabled() or self.training:
            return super().feature_maps(images)
        height, width = images.shape[2:]
        pieces = images.split(max(1, torch.get_num_threads(), round(PIXELS / (height * width))))
        form = inference_form(self)
        encoded = [
            super(FoldedEncoder, self).feature_maps(piece) if form is None else form(piece)
            for piece in pieces
        ]
        by_piece = [maps if isinstance(maps, tuple) else (maps,) for maps in encoded]
        return tuple(torch.cat(maps) for maps in zip(*by_piece, strict=True))


def inference_form(encoder: nn.Module) -> Callable[[Tensor], Maps] | None:
    """The faster form of normalisation and `features`, with the encoder's present weights: images (B, 3, H, W) uint8 ->
    feature maps.

    None if the encoder itself must run: its class does not declare `fixed_graph`, or it cannot be traced; a layer is in
    training mode, has hooks, or is not in single precision on the CPU; weights are not finite; or torch lacks fused
    convolutions here.

    Args:
        encoder: with `normalise`, `features` and `fixed_graph` of `caption.encoders.Encoder`.
    """
    layers = list(encoder.modules())[1:]
    if any(layer.training or layer._forward_hooks or layer._forward_pre_hooks for layer in layers):
        return None
    plain_weights = all(weight.dtype is torch.float32 and weight.is_cpu for weight in encoder.parameters())
    if not plain_weights or torch.is_autocast_enabled("cpu") or not convolution.fused_available():
        return None
    with _tracing:
        traced_layers, form = _forms.get(encoder, (None, None))
        if traced_layers != layers:  # a layer equals only itself
            form = _trace(encoder)
            _forms[encoder] = layers, form
    return None if form is None else form.with_weights()


class InferenceForm:
    """The graph of an encoder with fused convolutions.

    Args:
        graph: (images, `Weights`) -> feature maps.
        folded: each fused convolution, and the BatchNorm after it.
    """

    def __init__(
        self, graph: fx.GraphModule, folded: Sequence[tuple[nn.Conv2d, nn.BatchNorm2d | None]]
    ) -> None:
        self.graph = graph
        self.folded = folded

    def with_weights(self) -> Callable[[Tensor], Maps] | None:
        """The graph with the present weights; None if they are not finite, which fused activations would hide."""
        weights = [_fold(*pair) for pair in self.folded]
        sums = [tensor.sum() for pair in weights for tensor in pair if tensor is not None]
        if not torch.stack([*sums, torch.zeros(())]).isfinite().all():
            return None
        return lambda images: self.graph(images, weights)


def _fold(conv: nn.Conv2d, norm: nn.BatchNorm2d | None) -> tuple[Tensor, Tensor | None]:
    weight, bias = conv.weight, conv.bias
    if norm is not None:
        mean, variance = norm.running_mean, norm.running_var
        assert mean is not None
        assert variance is not None
        weight, bias = fuse_conv_bn_weights(weight, bias, mean, variance, norm.eps, norm.weight, norm.bias)
    return weight.contiguous(memory_format=torch.channels_last), bias


# -- tracing ------------------------------------------------------------------------------------------------------


class _Images(nn.Module):
    """An encoder from pixels to maps."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, images: Tensor) -> Maps:
        return self.encoder.features(self.encoder.normalise(images))  # type: ignore[operator]


class _Tracer(fx.Tracer):
    """Keeps torch's layers, and layers derived from them, as calls.

    While it traces, torch passes it the calls of all threads; those of other threads are executed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.thread = get_ident()

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, (nn.Conv2d, nn.BatchNorm2d)) or super().is_leaf_module(m, module_qualified_name)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if get_ident() != self.thread:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        if get_ident() != self.thread:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)


def _trace(encoder: nn.Module) -> InferenceForm | None:
    encoders = [plain_class(type(module)) for module in encoder.modules() if isinstance(module, Encoder)]
    if not all(vars(cls).get("fixed_graph", False) for cls in encoders):
        return None
    root = _Images(encoder)
    try:
        graph = _Tracer().trace(root)
    except Exception:  # an encoder may use a size or value that tracing does not know
        return None
    if any(node.op == "get_attr" and "_tensor_constant" in str(node.target) for node in graph.nodes):
        return None  # a tensor created while tracing, perhaps a random one
    return _fuse(graph, root)


class _Chain(NamedTuple):
    """A convolution and the operations that are fused with it."""

    nodes: list[fx.Node]
    conv: nn.Conv2d
    norm: nn.BatchNorm2d | None
    shortcut: fx.Node | None
    activation: str


def _fuse(graph: fx.Graph, root: nn.Module) -> InferenceForm:
    """Replace each convolution, and the operations that can be fused with it, by one call."""
    modules = dict(root.named_modules())
    images = next(iter(graph.nodes))
    with graph.inserting_after(images):
        weights = graph.placeholder("weights")
    _remove_identities(graph, modules)
    positions = {node: position for position, node in enumerate(graph.nodes)}
    folded: list[tuple[nn.Conv2d, nn.BatchNorm2d | None]] = []
    for node in list(graph.nodes):
        chain = _chain(node, modules, positions)
        if chain is None:
            continue
        conv, last = chain.conv, chain.nodes[-1]
        geometry = Geometry(conv.stride, conv.padding, conv.dilation, conv.groups)  # type: ignore[arg-type]
        with graph.inserting_before(last):
            pair = graph.call_function(operator.getitem, (weights, len(folded)))
            weight, bias = (graph.call_function(operator.getitem, (pair, index)) for index in (0, 1))
            arguments = (node.args[0], weight, bias, geometry, chain.activation, chain.shortcut)
            fused = graph.call_function(convolution.fused, arguments)
        last.replace_all_uses_with(fused)
        positions[fused] = positions[last]
        for replaced in reversed(chain.nodes):
            graph.erase_node(replaced)
        folded.append((conv, chain.norm))
    return InferenceForm(fx.GraphModule(root, graph), folded)


def _remove_identities(graph: fx.Graph, modules: dict[str, nn.Module]) -> None:
    """Remove operations that do nothing in evaluation mode."""
    for node in list(graph.nodes):
        drops_paths = node.op == "call_function" and node.target.__name__ == "stochastic_depth"
        if drops_paths or isinstance(_module(node, modules), (nn.Identity, nn.Dropout)):
            node.replace_all_uses_with(node.all_input_nodes[0])
            graph.erase_node(node)


def _chain(node: fx.Node, modules: dict[str, nn.Module], positions: dict[fx.Node, int]) -> _Chain | None:
    """The convolution of a node with the operations that can be fused with it; None if the node is not such a
    convolution."""
    conv = _module(node, modules)
    if type(conv) is not nn.Conv2d or conv.padding_mode != "zeros" or isinstance(conv.padding, str):
        return None
    nodes = [node]
    norm, shortcut, activation = None, None, "none"
    follower = _only_user(node)
    if follower is not None and (module := _foldable(follower, modules)) is not None:
        nodes.append(follower)
        norm, activation = module, ACTIVATIONS[type(getattr(module, "act", nn.Identity()))]
        follower = _only_user(follower)
    if follower is not None and activation == "none" and _is_sum(follower):
        shortcut = next(term for term in follower.all_input_nodes if term is not nodes[-1])
        nodes.append(follower)
        follower = _only_user(follower)
    if follower is not None and activation == "none" and (name := _activation(follower, modules)):
        nodes.append(follower)
        activation = name
    # The convolution moves after the nodes in between, which may change its input in place.
    between = range(positions[node], positions[nodes[-1]])
    users = (user for user in node.all_input_nodes[0].users if user not in nodes)
    if any(positions[user] in between for user in users):
        return _Chain([node], conv, None, None, "none")
    return _Chain(nodes, conv, norm, shortcut, activation)


def _module(node: fx.Node, modules: dict[str, nn.Module]) -> nn.Module | None:
    return modules.get(str(node.target)) if node.op == "call_module" else None


def _only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _foldable(node: fx.Node, modules: dict[str, nn.Module]) -> nn.BatchNorm2d | None:
    """The BatchNorm of a node: torch's, or timm's, which includes an activation."""
    norm = _module(node, modules)
    if not isinstance(norm, nn.BatchNorm2d) or norm.running_mean is None:
        return None
    children = {name: type(child) for name, child in norm.named_children()}
    timms = children.get("drop") is nn.Identity and children.get("act") in ACTIVATIONS and len(children) == 2
    return norm if timms or type(norm) is nn.BatchNorm2d else None


def _is_sum(node: fx.Node) -> bool:
    """Whether a node is the sum of two different tensors."""
    sums = node.op == "call_function" and node.target in (operator.add, torch.add) and not node.kwargs
    return sums and len(node.all_input_nodes) == len(node.args) == 2


def _activation(node: fx.Node, modules: dict[str, nn.Module]) -> str | None:
    return ACTIVATIONS.get(node.target if node.op == "call_function" else type(_module(node, modules)))
