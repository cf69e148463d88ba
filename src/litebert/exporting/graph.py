"""ONNX graphs written node by node, and the ways in which a linear layer can be stored in one.

``Graph`` collects nodes and initialisers; a graph inside another (the body of a loop) shares the initialisers of the
outer one, so a weight is stored once however often it is used. ``Arithmetic`` is how products are computed: in fp32, or
in integers with int8 weights (a scale for each output) and activations quantised while the model runs, with a scale for
each token or one for the whole tensor.

T tokens, K inputs and N outputs of a linear layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from litebert.errors import InputError

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError:
    raise InputError(
        "writing ONNX files needs the onnx package; install it with pip install 'litebert[export]'"
    ) from None

Array = npt.NDArray[Any]
Activations = Literal["token", "tensor"]

OPSET = 21
CONTRIB = "com.microsoft"  # operators that onnxruntime adds
# Activations have 8 bits: integers from 1 to 255 around 128. Processors without VNNI add pairs of products in 16 bits,
# which overflow; with 7 bits they do not, so the runtime sets these two initialisers to 1/63 and 64 there.
STEP, ZERO = "activation_step", "activation_zero"


class Graph:
    """Nodes in the order they run, with the initialisers they read."""

    def __init__(self, outer: "Graph | None" = None) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.root: Graph = self if outer is None else outer.root
        self.initializers: dict[str, onnx.TensorProto] = {} if outer is None else outer.initializers
        self.made: dict[str, str] = {} if outer is None else outer.made  # values of the root, made from weights
        self._names: dict[str, int] = {} if outer is None else outer._names

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        return self.ops(kind, inputs, 1, domain=domain, **attributes)[0]

    def ops(self, kind: str, inputs: Sequence[str], outputs: int, *, domain: str = "", **attributes: Any) -> list[str]:
        """Add a node of several outputs and return their names."""
        self._names[kind] = self._names.get(kind, 0) + 1
        stem = f"{kind}_{self._names[kind]}"
        names = [stem if outputs == 1 else f"{stem}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=stem, domain=domain, **attributes))
        return names

    def store(self, name: str, array: Array) -> str:
        """Store an initialiser, once."""
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(np.asarray(array, order="C"), name)
        return name

    def ints(self, *values: int) -> str:
        """A small constant vector of whole numbers."""
        return self.store(f"ints_{'_'.join(map(str, values))}", np.array(values, np.int64))

    def index(self, value: int) -> str:
        """A constant whole number."""
        return self.store(f"index_{value}", np.array(value, np.int64))

    def number(self, value: float) -> str:
        """A constant number."""
        return self.store(f"number_{value:g}", np.array(value, np.float32))

    def rename(self, value: str, name: str) -> str:
        """Give a value the name of an output."""
        self.nodes.append(helper.make_node("Identity", [value], [name], name=f"output_{name}"))
        return name

    def norm(self, x: str, name: str, weights: "Weights", eps: float) -> str:
        """A layer norm over the last axis."""
        scale, bias = (self.store(f"{name}.{part}", weights[f"{name}.{part}"]) for part in ("weight", "bias"))
        return self.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=eps)

    def model(
        self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto], name: str
    ) -> onnx.ModelProto:
        """The finished model."""
        graph = helper.make_graph(self.nodes, name, inputs, outputs, list(self.initializers.values()))
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="litebert")


Weights = dict[str, Array]


def value_info(name: str, kind: int, shape: Sequence[str | int]) -> onnx.ValueInfoProto:
    """An input or output of a graph."""
    return helper.make_tensor_value_info(name, kind, list(shape))


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """How products are computed and weights stored: ``bits`` 32 (fp32), 8 or 4 (stored in 4, computed in 8)."""

    bits: Literal[32, 8, 4] = 8
    activations: Activations = "token"

    def linear(self, graph: Graph, x: str, name: str, weights: Weights, zeros: str | None = None) -> str:
        """(T, K) ``x`` times the weight (N, K) of this name, plus its bias where it has one: (T, N).

        ``zeros`` is what ``zeros`` below gives for T rows, so that many layers can share it.
        """
        weight, bias = weights[f"{name}.weight"], weights.get(f"{name}.bias")
        if self.bits == 32:
            product = graph.op("MatMul", x, graph.store(f"{name}.weight", weight.T))
        elif self.activations == "token":
            product = self._by_token(graph, x, name, weight, zeros)
        else:
            product = self._by_tensor(graph, x, name, weight)
        return product if bias is None else graph.op("Add", product, graph.store(f"{name}.bias", bias))

    def zeros(self, graph: Graph, rows: str) -> str | None:
        """(T) the zero point of each row of activations; ``rows`` is any value of T rows and no other axis."""
        if self.bits == 32 or self.activations == "tensor":
            return None
        return self._zeros(graph, rows)

    def _zeros(self, graph: Graph, rows: str) -> str:
        return graph.op("Expand", self._zero(graph), graph.op("Shape", rows))

    def rows(self, graph: Graph, name: str, table: Array, ids: str) -> str:
        """Rows of a table, in fp32."""
        if self.bits == 32:
            return graph.op("Gather", graph.store(name, table), ids)
        stored, scale = self._table(graph, name, table)
        picked = graph.op("Cast", graph.op("Gather", stored, ids), to=TensorProto.FLOAT)
        scales = graph.op("Cast", graph.op("Gather", scale, ids), to=TensorProto.FLOAT)
        return graph.op("Mul", picked, graph.op("Unsqueeze", scales, graph.ints(-1)))

    def table_product(self, graph: Graph, x: str, name: str, table: Array) -> str:
        """(T, K) ``x`` times the rows of a table (N, K) that ``rows`` may also read: (T, N)."""
        if self.bits == 32:
            return graph.op("MatMul", x, graph.op("Transpose", graph.store(name, table), perm=[1, 0]))
        stored, scale = self._table(graph, name, table)
        turned = graph.op("Transpose", stored, perm=[1, 0])
        scales = graph.op("Cast", scale, to=TensorProto.FLOAT)
        quantised, step = self._quantise(graph, x)
        product = graph.op("MatMulIntegerToFloat", quantised, turned, graph.number(1), scales, self._zero(graph),
                           domain=CONTRIB)  # fmt: skip
        return graph.op("Mul", product, step)

    @staticmethod
    def _table(graph: Graph, name: str, table: Array) -> tuple[str, str]:
        """A table as int8 with a scale for each row, which half precision is enough for."""
        rows, scales = quantise(table)
        return graph.store(f"{name}.int8", rows), graph.store(f"{name}.scale", scales.astype(np.float16))

    def _weight(self, graph: Graph, name: str, weight: Array) -> tuple[str, str]:
        """The weight (N, K) as (K, N) int8 and its scales (N)."""
        if self.bits == 4:
            return self._widened(graph, name, weight)
        columns, scales = quantise(weight)
        return graph.store(f"{name}.int8", columns.T), graph.store(f"{name}.scale", scales)

    @staticmethod
    def _widened(graph: Graph, name: str, weight: Array) -> tuple[str, str]:
        """4-bit weights, two to a byte, and what makes int8 of them; onnxruntime computes that once, when it loads."""
        graph = graph.root
        if name in graph.made:
            return graph.made[name], f"{name}.scale"
        packed, multipliers, scales = quantise_to_four_bits(weight)
        size, blocks = weight.shape[1], multipliers.shape[1]
        both = graph.store(f"{name}.int4", packed)  # (N, K / 2)
        low = graph.op("BitwiseAnd", both, graph.store("low_bits", np.array(15, np.uint8)))
        high = graph.op("BitShift", both, graph.store("four", np.array(4, np.uint8)), direction="RIGHT")
        joined = graph.op("Cast", graph.op("Concat", low, high, axis=1), to=TensorProto.FLOAT)
        blocked = graph.op("Reshape", joined, graph.ints(len(weight), blocks, size // blocks))
        small = graph.op("Sub", blocked, graph.number(8))
        factor = graph.op("Cast", graph.store(f"{name}.multiplier", multipliers), to=TensorProto.FLOAT)
        wide = graph.op("Mul", small, graph.op("Unsqueeze", factor, graph.ints(-1)))
        flat = graph.op("Cast", graph.op("Reshape", wide, graph.ints(len(weight), size)), to=TensorProto.INT8)
        graph.made[name] = graph.op("Transpose", flat, perm=[1, 0])
        return graph.made[name], graph.store(f"{name}.scale", scales)

    def _by_token(self, graph: Graph, x: str, name: str, weight: Array, zeros: str | None) -> str:
        stored, scale = self._weight(graph, name, weight)
        quantised, step = self._quantise(graph, x, zeros)
        product = graph.op("MatMulIntegerToFloat", quantised, stored, graph.number(1), scale, self._zero(graph),
                           domain=CONTRIB)  # fmt: skip
        return graph.op("Mul", product, step)

    def _quantise(self, graph: Graph, x: str, zeros: str | None = None) -> tuple[str, str]:
        """(T, K) as uint8 with the scale (T, 1) of each row: an answer does not depend on what else is in the batch.

        The scale of a row of zeros is zero. Whatever integers such a row becomes, its products times that are zero.
        """
        largest = graph.op("ReduceMax", graph.op("Abs", x), graph.ints(-1), keepdims=0)
        step = graph.op("Mul", largest, graph.store(STEP, np.array(1 / 127, np.float32)))
        quantised = graph.op("QuantizeLinear", x, step, zeros or self._zeros(graph, step), axis=0)
        return quantised, graph.op("Unsqueeze", step, graph.ints(-1))

    @staticmethod
    def _zero(graph: Graph) -> str:
        return graph.store(ZERO, np.array(128, np.uint8))

    def _by_tensor(self, graph: Graph, x: str, name: str, weight: Array) -> str:
        """One scale for all of ``x``: what onnxruntime fuses to a single node."""
        stored, scale = self._weight(graph, name, weight)
        quantised, step, zero = graph.ops("DynamicQuantizeLinear", [x], 3)
        product = graph.op("MatMulInteger", quantised, stored, zero)
        product = graph.op("Cast", product, to=TensorProto.FLOAT)
        return graph.op("Mul", product, graph.op("Mul", step, scale))


def quantise(weight: Array) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Rows of int8 between -127 and 127, and the scale of each row."""
    scales = (np.abs(weight).max(1) / 127).astype(np.float32)
    scales[scales == 0] = 1
    return np.clip(np.round(weight / scales[:, None]), -127, 127).astype(np.int8), scales


def quantise_to_four_bits(weight: Array, block: int = 32) -> tuple[Array, Array, Array]:
    """Bytes (N, K / 2) of two weights each, the multiplier (N, K / block) of each block, and the scale (N) of each row.

    A weight is ``(bits - 8) * multiplier * scale``. Multipliers are whole numbers up to 15, so that the products
    (at most 8 * 15) are exact in int8. The first half of a row is in the low bits, the second in the high ones.
    """
    rows, size = weight.shape
    while size % (2 * block) and block > 1:
        block //= 2
    if size % 2:
        raise InputError(f"a weight with {size} inputs cannot be stored in 4 bits; export it with 8")
    blocks = weight.reshape(rows, size // block, block)
    largest = np.abs(blocks).max(-1)
    scales = (largest.max(1) / (7 * 15)).astype(np.float32)
    scales[scales == 0] = 1
    multipliers = np.clip(np.ceil(largest / (7 * scales[:, None])), 1, 15)
    fine = blocks / (multipliers * scales[:, None])[..., None]
    bits = (np.clip(np.round(fine), -8, 7) + 8).astype(np.uint8).reshape(rows, size)
    packed = bits[:, : size // 2] | (bits[:, size // 2 :] << 4)
    return packed, multipliers.astype(np.uint8), scales
