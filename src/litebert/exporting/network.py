"""A network as an ONNX graph: embeddings, the layers of its plan, pooler and heads, written from its config.

Two graphs are made of a network. ``text_model`` reads one text, without padding or a batch: it is what our runtime
uses. Where every layer is the same shared block, it is an ONNX ``Loop`` whose number of rounds, the depth, is an input.
``standard_model`` has the inputs and outputs that other programs expect: padded batches with an attention mask.

B batch, N tokens of a text, T = B * N, H width, A heads, D head width, P chosen positions, V vocabulary, L labels.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

from litebert.errors import InputError
from litebert.exporting.graph import Arithmetic, Array, Graph, Weights, value_info
from litebert.nn.attention_pattern import Pattern
from litebert.nn.config import Activation, EncoderConfig
from litebert.nn.network import NetworkConfig

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
NEVER = {"confidence": 2.0, "patience": 1 << 30}  # what no answer reaches: the exits are off
HIDDEN = -1e4  # added to the score of padding, and of what is not seen
CHUNK = 128  # queries of a window that are computed together
FP32 = Arithmetic(bits=32)


@dataclass(frozen=True, kw_only=True)
class ExitHeads:
    """Linear heads on the pooled token's state beside the mean of all tokens, one for each depth of a shared block.

    ``kind`` of task: classify, multilabel or regress. Numbers within ``tolerance`` count as the same answer.
    """

    weight: Array  # (depths, 2H, L); at the last depth the model's own head answers
    bias: Array  # (depths, L)
    kind: str
    tolerance: float = 0.0


@dataclass(frozen=True)
class _Frame:
    """What the layers of a graph need to know about the shape of a batch, as names of values in the graph."""

    heads: str  # the shape (B, N, A, D)
    mask: str | None = None  # (B, 1, 1, N) added to scores: 0, or HIDDEN where there is padding
    distances: str | None = None  # (2N, H) encodings of distances, of relative positions
    same: str | None = None  # (B, 1, N, N) True where two tokens are of one segment
    zeros: str | None = None  # (T) zero points of quantised activations
    tokens: str = ""  # N


def is_loop(config: EncoderConfig) -> bool:
    """Whether every layer is the same block and sees as much, so that one loop can run any depth."""
    return len(set(zip(config.plan, config.patterns, strict=True))) == 1 and config.positions == "absolute"


class _Writer:
    """Writes the parts of one network into a graph."""

    def __init__(self, config: NetworkConfig, weights: Weights, arithmetic: Arithmetic) -> None:
        self.config, self.encoder, self.arithmetic = config, config.encoder, arithmetic
        self.weights = weights if self.encoder.positions == "relative" else _scaled_queries(weights, self.encoder)
        self._hidden: dict[Pattern, str] = {}  # by pattern, (N, N) what is added to scores where texts are padded

    def embeddings(self, graph: Graph, ids: str, positions: str, segments: str | None, zeros: str | None) -> str:
        """(T) ids to the first states (T, H)."""
        part, config = "encoder.embeddings", self.encoder
        x = self.arithmetic.rows(graph, f"{part}.token", self.weights[f"{part}.token.weight"], ids)
        if config.positions == "absolute":
            table = self.weights[f"{part}.position.weight"][config.position_offset :]
            x = graph.op("Add", x, self.arithmetic.rows(graph, f"{part}.position", table, positions))
        if config.num_segments:
            table = self.weights[f"{part}.segment.weight"]
            rows = FP32.rows(graph, f"{part}.segment", table, segments or graph.ints(0))
            x = graph.op("Add", x, rows)
        if config.embedding_norm:
            x = graph.norm(x, f"{part}.norm", self.weights, config.norm_eps)
        if config.projects_embeddings:
            x = self.arithmetic.linear(graph, x, f"{part}.projection", self.weights, zeros)
        return x

    def layer(self, graph: Graph, x: str, depth: int, frame: _Frame) -> str:
        """The states (T, H) after the attention and the feed-forward block of a depth, counted from 0."""
        blocks, pattern = self.encoder.plan[depth], self.encoder.patterns[depth]
        attention, feed_forward = f"encoder.attention.{blocks[0]}", f"encoder.feed_forward.{blocks[1]}"
        eps, weights = self.encoder.norm_eps, self.weights
        linear: Callable[[str, str], str] = lambda x, name: self.arithmetic.linear(graph, x, name, weights, frame.zeros)  # noqa: E731
        attended = linear(self._attend(graph, x, attention, pattern, frame), f"{attention}.out")
        x = graph.norm(graph.op("Add", attended, x), f"{attention}.norm", weights, eps)
        inner = activate(graph, linear(x, f"{feed_forward}.up"), self.encoder.activation)
        change = linear(inner, f"{feed_forward}.down")
        return graph.norm(graph.op("Add", change, x), f"{feed_forward}.norm", weights, eps)

    def _attend(self, graph: Graph, x: str, block: str, pattern: Pattern, frame: _Frame) -> str:
        """Every token looks at the tokens of its own text, or at those it sees: (T, H) to (T, H)."""
        config = self.encoder
        qkv = self.arithmetic.linear(graph, x, f"{block}.qkv", self.weights, frame.zeros)
        q, k, v = (
            graph.op("Reshape", one, frame.heads) for one in graph.ops("Split", [qkv], 3, axis=-1, num_outputs=3)
        )
        if pattern.kind != "full" and frame.mask is None:
            return self._attend_near(graph, (q, k, v), pattern, frame)
        queries = q  # scaled, as their weights are
        if frame.distances is not None:
            queries = graph.op("Add", q, self._parameter(graph, f"{block}.relative.content_bias"))
        turned = graph.op("Transpose", queries, perm=[0, 2, 1, 3])  # (B, A, N, D)
        scores = graph.op("MatMul", turned, graph.op("Transpose", k, perm=[0, 2, 3, 1]))  # (B, A, N, N)
        if frame.distances is not None:
            scores = graph.op("Add", scores, self._relative(graph, q, block, frame))
            scores = graph.op("Mul", scores, graph.number(config.head_width**-0.5))
        if frame.mask is not None:
            scores = graph.op("Add", scores, frame.mask)
        if pattern.kind != "full":
            scores = graph.op("Add", scores, self._outside_pattern(graph, pattern, frame))
        shares = graph.op("Softmax", scores, axis=-1)
        seen = graph.op("MatMul", shares, graph.op("Transpose", v, perm=[0, 2, 1, 3]))
        return graph.op("Reshape", graph.op("Transpose", seen, perm=[0, 2, 1, 3]), graph.ints(-1, config.width))

    def _attend_near(self, graph: Graph, qkv: tuple[str, str, str], pattern: Pattern, frame: _Frame) -> str:
        """Attention of one text whose cost is linear in its length; plain where a token sees all of it."""
        most = max(length for length in range(pattern.first + 2 * pattern.size + 2) if pattern.sees_all(length))
        branches = {}
        for name in ("then_branch", "else_branch"):
            inside = Graph(graph)
            q, k, v = (inside.op("Squeeze", one, graph.ints(0)) for one in qkv)  # (N, A, D)
            if name == "then_branch":
                value = self._rows(inside, q, k, v)
            else:
                value = self._chunks(inside, q, k, v, pattern, frame.tokens)
                if pattern.first:
                    first = inside.op("Slice", q, graph.ints(0), graph.ints(pattern.first), graph.ints(0))
                    value = inside.op("Concat", self._rows(inside, first, k, v), value, axis=0)
            branches[name] = helper.make_graph(
                inside.nodes, name, [], [value_info(value, FLOAT, ["N", self.encoder.width])]
            )
        return graph.op("If", graph.op("LessOrEqual", frame.tokens, graph.index(most)), **branches)

    def _rows(self, graph: Graph, q: str, k: str, v: str) -> str:
        """(Q, A, D) queries at all keys: (Q, H)."""
        turned = graph.op("Transpose", q, perm=[1, 0, 2])
        shares = graph.op("Softmax", graph.op("MatMul", turned, graph.op("Transpose", k, perm=[1, 2, 0])), axis=-1)
        seen = graph.op("MatMul", shares, graph.op("Transpose", v, perm=[1, 0, 2]))
        return graph.op("Reshape", graph.op("Transpose", seen, perm=[1, 0, 2]), graph.ints(-1, self.encoder.width))

    def _chunks(self, graph: Graph, q: str, k: str, v: str, pattern: Pattern, tokens: str) -> str:
        """Chunks of the other tokens at their neighbours and at the global tokens: (N - G, H)."""
        local = pattern.kind == "local"
        size, window, shift = (CHUNK, pattern.size, 0) if local else (pattern.size, 0, pattern.opening_gap)
        end = graph.op("Add", tokens, graph.index(shift - pattern.first))
        begins = graph.op("Range", graph.index(pattern.first - shift), tokens, graph.index(size))
        begins = graph.op("Unsqueeze", begins, graph.ints(-1))  # (chunks, 1)
        last = graph.op("Sub", tokens, graph.index(1))
        rows = graph.op("Add", begins, graph.store(f"places_{size}", np.arange(size)))
        columns = graph.op("Add", begins, graph.store(f"seen_{size}_{window}", np.arange(-window, size + window)))
        real = graph.op("And", graph.op("GreaterOrEqual", columns, graph.index(pattern.first)),
                        graph.op("LessOrEqual", columns, last))  # fmt: skip
        hidden = graph.op("Where", real, graph.number(0), graph.number(HIDDEN))
        hidden = graph.op("Unsqueeze", hidden, graph.ints(1, 2))  # (chunks, 1, 1, keys)
        if local:
            away = np.arange(size)[:, None] - np.arange(-window, size + window)
            band = np.where(abs(away) <= window, 0, HIDDEN).astype(np.float32)
            hidden = graph.op("Add", hidden, graph.store(f"band_{size}_{window}", band))
        clip: Callable[[str], str] = lambda places: graph.op("Min", graph.op("Max", places, graph.index(0)), last)  # noqa: E731
        asked = graph.op("Transpose", graph.op("Gather", q, clip(rows)), perm=[0, 2, 1, 3])  # (chunks, A, size, D)
        near = graph.op("Gather", k, clip(columns)), graph.op("Gather", v, clip(columns))
        scores = graph.op("MatMul", asked, graph.op("Transpose", near[0], perm=[0, 2, 3, 1]))
        scores = graph.op("Add", scores, hidden)
        if pattern.first:
            glob = [graph.op("Slice", x, graph.ints(0), graph.ints(pattern.first), graph.ints(0)) for x in (k, v)]
            more = graph.op("MatMul", asked, graph.op("Transpose", glob[0], perm=[1, 2, 0]))
            scores = graph.op("Concat", more, scores, axis=-1)
        shares = graph.op("Softmax", scores, axis=-1)
        if pattern.first:
            sizes = graph.ints(pattern.first, size + 2 * window)
            of_glob, shares = graph.ops("Split", [shares, sizes], 2, axis=-1)
        seen = graph.op("MatMul", shares, graph.op("Transpose", near[1], perm=[0, 2, 1, 3]))
        if pattern.first:
            seen = graph.op("Add", seen, graph.op("MatMul", of_glob, graph.op("Transpose", glob[1], perm=[1, 0, 2])))
        flat = graph.op("Reshape", graph.op("Transpose", seen, perm=[0, 2, 1, 3]), graph.ints(-1, self.encoder.width))
        return graph.op("Slice", flat, graph.ints(shift), graph.op("Unsqueeze", end, graph.ints(0)), graph.ints(0))

    def _outside_pattern(self, graph: Graph, pattern: Pattern, frame: _Frame) -> str:
        """(N, N) what is added to the scores of padded texts: HIDDEN where a token may not look."""
        if pattern not in self._hidden:
            places = graph.op("Range", graph.index(0), frame.tokens, graph.index(1))
            place = graph.op("Sub", places, graph.index(pattern.first))
            if pattern.kind == "block":
                moved = graph.op("Add", place, graph.index(pattern.opening_gap))
                place = graph.op("Div", moved, graph.index(pattern.size))
            down, across = graph.op("Unsqueeze", place, graph.ints(1)), graph.op("Unsqueeze", place, graph.ints(0))
            if pattern.kind == "block":
                near = graph.op("Equal", down, across)
            else:
                away = graph.op("Abs", graph.op("Sub", down, across))
                near = graph.op("LessOrEqual", away, graph.index(pattern.size))
            glob = graph.op("Less", places, graph.index(pattern.first))
            either = graph.op(
                "Or", graph.op("Unsqueeze", glob, graph.ints(1)), graph.op("Unsqueeze", glob, graph.ints(0))
            )
            near = graph.op("Or", near, either)
            self._hidden[pattern] = graph.op("Where", near, graph.number(0), graph.number(HIDDEN))
        return self._hidden[pattern]

    def _relative(self, graph: Graph, q: str, block: str, frame: _Frame) -> str:
        """What distances and segments add to the scores (B, A, N, N) of queries (B, N, A, D) (XLNet)."""
        config, part = self.encoder, f"{block}.relative"
        assert frame.distances is not None
        keys = graph.op(
            "MatMul", frame.distances, graph.store(f"{part}.distance", self.weights[f"{part}.distance.weight"].T)
        )
        keys = graph.op("Reshape", keys, graph.ints(-1, config.num_heads, config.head_width))
        keys = graph.op("Transpose", keys, perm=[1, 2, 0])  # (A, D, 2N)
        asking = graph.op("Add", q, self._parameter(graph, f"{part}.distance_bias"))
        scores = graph.op("MatMul", graph.op("Transpose", asking, perm=[0, 2, 1, 3]), keys)  # (B, A, N, 2N)
        # Token i wants the columns N - i to 2N - i - 1. Read with rows one shorter, they all begin at column 0.
        shape = graph.op("Shape", scores)
        some, heads, tokens, twice = graph.ops("Split", [shape], 4, axis=0, num_outputs=4)
        tall = graph.op("Reshape", scores, graph.op("Concat", some, heads, twice, tokens, axis=0))
        shorter = graph.op("Slice", tall, graph.ints(1), graph.ints(2**31), graph.ints(2))
        rows = graph.op("Concat", some, heads, tokens, graph.op("Sub", twice, graph.ints(1)), axis=0)
        scores = graph.op("Slice", graph.op("Reshape", shorter, rows), graph.ints(0), tokens, graph.ints(3))
        if frame.same is not None:
            asking = graph.op("Add", q, self._parameter(graph, f"{part}.segment_bias"))
            kinds = graph.store(f"{part}.segment", self.weights[f"{part}.segment"].transpose(1, 2, 0))  # (A, D, 2)
            found = graph.op("MatMul", graph.op("Transpose", asking, perm=[0, 2, 1, 3]), kinds)
            alike, other = graph.ops("Split", [found], 2, axis=-1, num_outputs=2)
            scores = graph.op("Add", scores, graph.op("Where", frame.same, alike, other))
        return scores

    def _parameter(self, graph: Graph, name: str) -> str:
        return graph.store(name, self.weights[name])

    def relations(
        self, graph: Graph, heads: str, tokens: str, segments: str | None, mask: str | None, zeros: str | None
    ) -> _Frame:
        """The frame of a batch; ``tokens`` is N and ``segments`` (B, N), as values of the graph."""
        if self.encoder.positions == "absolute":
            return _Frame(heads, mask, zeros=zeros, tokens=tokens)
        width = self.encoder.width
        away = graph.op("Range", tokens, graph.op("Neg", tokens), graph.index(-1))  # N, N - 1, ... 1 - N
        away = graph.op("Unsqueeze", graph.op("Cast", away, to=FLOAT), graph.ints(-1))
        frequencies = (1 / 10000 ** (np.arange(0, width, 2, dtype=np.float32) / width)).astype(np.float32)
        angles = graph.op("Mul", away, graph.store("frequencies", frequencies))
        distances = graph.op("Concat", graph.op("Sin", angles), graph.op("Cos", angles), axis=-1)
        same = None
        if segments is not None:
            same = graph.op(
                "Equal",
                graph.op("Unsqueeze", segments, graph.ints(1, 3)),  # (B, 1, N, 1)
                graph.op("Unsqueeze", segments, graph.ints(1, 2)),
            )
        return _Frame(heads, mask, distances, same, zeros)

    def pooled(self, graph: Graph, token: str) -> str:
        """The pooler's vector (B, H) of the pooled tokens' states, or these where the network has no pooler."""
        if not self.config.has_pooler:
            return token
        dense = self.arithmetic.linear(graph, token, "pooler.dense", self.weights)
        return activate(graph, dense, self.encoder.pooler)

    def tokens(self, graph: Graph, x: str) -> str:
        """Vocabulary logits (P, V) at ``positions``. Without any, nothing is computed: a run computes all outputs."""
        branches = {}
        for name in ("then_branch", "else_branch"):
            inside = Graph(graph)
            if name == "then_branch":
                value = self.masked_lm(inside, inside.op("Gather", x, "positions"))
            else:
                value = inside.op(
                    "Identity", graph.store("no_tokens", np.zeros((0, self.encoder.vocab_size), np.float32))
                )
            branches[name] = helper.make_graph(
                inside.nodes, name, [], [value_info(value, FLOAT, ["P", self.encoder.vocab_size])]
            )
        some = graph.op("Greater", graph.op("Size", "positions"), graph.index(0))
        return graph.op("If", some, **branches)

    def masked_lm(self, graph: Graph, states: str) -> str:
        """Vocabulary logits (P, V) of states (P, H)."""
        head, config = "heads.masked_lm", self.encoder
        if config.head_transform:
            states = self.arithmetic.linear(graph, states, f"{head}.dense", self.weights)
            states = activate(graph, states, config.head_activation or config.activation)
            states = graph.norm(states, f"{head}.norm", self.weights, config.norm_eps)
        name = "encoder.embeddings.token" if config.tied else f"{head}.table"
        logits = self.arithmetic.table_product(graph, states, name, self.weights[f"{name}.weight"])
        bias = self._parameter(graph, f"{head}.bias") if self.arithmetic.bits == 32 else graph.op(
            "Cast", graph.store(f"{head}.bias", self.weights[f"{head}.bias"].astype(np.float16)), to=FLOAT
        )  # fmt: skip
        return graph.op("Add", logits, bias)

    def head(self, graph: Graph, x: str, name: str) -> str:
        """A small linear layer, in fp32."""
        return FP32.linear(graph, x, name, self.weights)


def _scaled_queries(weights: Weights, config: EncoderConfig) -> Weights:
    """The weights, those of queries divided by the root of the head width: the graph need not do it."""
    factor = np.ones((3 * config.width, 1), np.float32)
    factor[: config.width] = config.head_width**-0.5
    found = dict(weights)
    for block in range(config.num_attention_blocks):
        part = f"encoder.attention.{block}.qkv"
        found[f"{part}.weight"] = weights[f"{part}.weight"] * factor
        if f"{part}.bias" in weights:
            found[f"{part}.bias"] = weights[f"{part}.bias"] * factor[:, 0]
    return found


def activate(graph: Graph, x: str, kind: Activation | str) -> str:
    """An activation function."""
    match kind:
        case "gelu_tanh":
            return graph.op("Gelu", x, approximate="tanh")
        case "gelu":
            return graph.op("Gelu", x)
        case "relu":
            return graph.op("Relu", x)
        case "silu":
            return graph.op("Mul", x, graph.op("Sigmoid", x))
        case "tanh":
            return graph.op("Tanh", x)
    raise InputError(f"the activation '{kind}' cannot be exported")


def takes_segments(config: EncoderConfig) -> bool:
    """Whether segments make a difference to a model."""
    return config.num_segments > 1 or config.positions == "relative"


def text_model(
    config: NetworkConfig, weights: Weights, arithmetic: Arithmetic, exits: ExitHeads | None = None
) -> onnx.ModelProto:
    """The model of one text: ``input_ids`` (N), ``segments`` (N), and the optional ``depth`` and ``positions`` (P).

    Outputs: ``states`` (N, H), ``mean``, ``first`` and ``pooled`` (H),
    and for the heads it has ``logits`` (L), ``order`` (2), ``start``, ``end`` (N), ``answerable``, ``tokens`` (P, V).
    With exits, also ``exit_logits`` (L) and ``exit_depth``, by the rule that ``confidence`` or ``patience`` sets, and
    ``exit_scores`` (depths run, L), what the heads of all depths gave.
    """
    encoder, graph = config.encoder, Graph()
    write = _Writer(config, weights, arithmetic)
    segmented = takes_segments(encoder)
    inputs = [value_info("input_ids", INT64, ["N"])]
    inputs += [value_info("segments", INT64, ["N"])] if segmented else []
    count = graph.op("Squeeze", graph.op("Shape", "input_ids"), graph.ints(0))
    places = graph.op("Range", graph.index(0), count, graph.index(1))
    zeros = arithmetic.zeros(graph, "input_ids")
    x = write.embeddings(graph, "input_ids", places, "segments" if segmented else None, zeros)
    heads = graph.ints(1, -1, encoder.num_heads, encoder.head_width)
    rows = graph.op("Unsqueeze", "segments", graph.ints(0)) if encoder.positions == "relative" else None
    frame = write.relations(graph, heads, count, rows, None, zeros)
    outputs: list[onnx.ValueInfoProto] = []
    left: list[str] = []  # with exits, the scores of the head and the depth at which the loop ended, and all scores
    if is_loop(encoder):
        inputs.append(value_info("depth", INT64, []))
        graph.store("depth", np.array(len(encoder.plan), np.int64))
        if exits is not None:
            inputs += [value_info("confidence", FLOAT, []), value_info("patience", INT64, [])]
            graph.store("confidence", np.array(NEVER["confidence"], np.float32))
            graph.store("patience", np.array(NEVER["patience"], np.int64))
        x, left = _loop(write, graph, x, frame, exits)
    else:
        for depth in range(encoder.num_layers):
            x = write.layer(graph, x, depth, frame)

    def give(name: str, value: str, shape: list[str | int]) -> None:
        outputs.append(value_info(graph.rename(value, name), FLOAT, shape))

    token = graph.op("Gather", x, graph.ints(0 if encoder.pooled_token == "first" else -1))  # (1, H)
    pooled = write.pooled(graph, token)
    whole: list[str | int] = ["N", encoder.width]
    give("states", x, whole)
    give("mean", graph.op("ReduceMean", x, graph.ints(0), keepdims=0), [encoder.width])
    give("first", graph.op("Squeeze", token, graph.ints(0)), [encoder.width])
    give("pooled", graph.op("Squeeze", pooled, graph.ints(0)), [encoder.width])
    names = config.heads.names
    for head in ("classify", "choice"):
        if head in names:
            logits = graph.op("Squeeze", write.head(graph, pooled, f"heads.{head}.linear"), graph.ints(0))
            give("logits", logits, [len(weights[f"heads.{head}.linear.weight"])])
            if left:  # at the last depth the model's own head answers
                last = graph.op("Equal", left[1], graph.index(len(encoder.plan)))
                give("exit_logits", graph.op("Where", last, logits, left[0]), [len(config.heads.labels)])
                outputs.append(value_info(graph.rename(left[1], "exit_depth"), INT64, []))
                give("exit_scores", left[3], ["D", len(config.heads.labels)])
    if "order" in names:
        give("order", graph.op("Squeeze", write.head(graph, pooled, "heads.order.linear"), graph.ints(0)), [2])
    if "span" in names:
        both = graph.ops("Split", [write.head(graph, x, "heads.span.linear")], 2, axis=-1, num_outputs=2)
        for name, one in zip(("start", "end"), both, strict=True):
            give(name, graph.op("Squeeze", one, graph.ints(-1)), ["N"])
        if config.heads.answerable:
            first = graph.op("Gather", x, graph.ints(0))
            give(
                "answerable", graph.op("Squeeze", write.head(graph, first, "heads.span.answerable"), graph.ints(0)), [1]
            )
    if "masked_lm" in names and encoder.positions == "absolute":
        inputs.append(value_info("positions", INT64, ["P"]))
        graph.store("positions", np.zeros(0, np.int64))
        give("tokens", write.tokens(graph, x), ["P", encoder.vocab_size])
    return graph.model(inputs, outputs, "litebert")


def _loop(write: _Writer, graph: Graph, x: str, frame: _Frame, exits: ExitHeads | None) -> tuple[str, list[str]]:
    """The one block run ``depth`` times, or until an exit rule holds: the states, and what the exits carry."""
    body, width = Graph(graph), write.encoder.width
    body.rename(write.layer(body, "x_in", 0, frame), "x_out")
    carried: list[tuple[str, int, list[str | int]]] = [("x", FLOAT, ["N", width])]
    first = [x]
    scans: list[onnx.ValueInfoProto] = []  # outputs of every round
    if exits is None:
        body.rename("going_in", "going_out")
    else:
        labels = exits.bias.shape[1]
        for name, kind, zero in (
            ("exit_logits", FLOAT, np.zeros(labels, np.float32)),
            ("exit_depth", INT64, np.array(0, np.int64)),
            ("agreed", INT64, np.array(0, np.int64)),
        ):
            carried.append((name, kind, list(zero.shape)))
            first.append(graph.store(f"{name}_start", zero))
        logits = _exit_rule(body, write.encoder.pooled_token, exits)
        scans.append(value_info(body.rename(logits, "exit_scores_out"), FLOAT, [labels]))
    inner = helper.make_graph(
        body.nodes,
        "layer",
        [value_info("round", INT64, []), value_info("going_in", BOOL, [])]
        + [value_info(f"{name}_in", kind, shape) for name, kind, shape in carried],
        [value_info("going_out", BOOL, [])]
        + [value_info(f"{name}_out", kind, shape) for name, kind, shape in carried]
        + scans,
    )
    start = graph.store("true", np.array(True))
    found = graph.ops("Loop", ["depth", start, *first], len(first) + len(scans), body=inner)
    return found[0], found[1:]


def _exit_rule(body: Graph, pooled_token: str, exits: ExitHeads) -> str:
    """Scores of this depth's head, and whether the loop continues: until they are confident enough, or agree enough."""
    token = body.op("Gather", "x_out", body.index(0 if pooled_token == "first" else -1), axis=0)
    mean = body.op("ReduceMean", "x_out", body.ints(0), keepdims=0)
    features = body.op("Concat", token, mean, axis=0)
    weight = body.op("Gather", body.store("exits.weight", exits.weight.astype(np.float32)), "round", axis=0)
    bias = body.op("Gather", body.store("exits.bias", exits.bias.astype(np.float32)), "round", axis=0)
    logits = body.rename(body.op("Add", body.op("MatMul", features, weight), bias), "exit_logits_out")
    body.rename(body.op("Add", "round", body.index(1)), "exit_depth_out")
    same, share = _answers(body, logits, exits)
    same = body.op("And", same, body.op("Greater", "round", body.index(0)))
    again = body.op("Mul", body.op("Cast", same, to=INT64), "agreed_in")
    agreed = body.rename(body.op("Add", again, body.index(1)), "agreed_out")
    enough = body.op("GreaterOrEqual", agreed, "patience")
    if share:
        enough = body.op("Or", enough, body.op("GreaterOrEqual", share, "confidence"))
    body.rename(body.op("Not", enough), "going_out")
    return logits


def _answers(body: Graph, logits: str, exits: ExitHeads) -> tuple[str, str]:
    """Whether two heads in a row give the same answer, and how confident this one is ("" for numbers)."""
    before = "exit_logits_in"
    if exits.kind == "regress":
        apart = body.op("ReduceMax", body.op("Abs", body.op("Sub", logits, before)), keepdims=0)
        return body.op("LessOrEqual", apart, body.number(exits.tolerance)), ""
    if exits.kind == "multilabel":
        zero = body.number(0)
        both = [body.op("Cast", body.op("Greater", one, zero), to=INT64) for one in (logits, before)]
        different = body.op("ReduceMax", body.op("Abs", body.op("Sub", *both)), keepdims=0)
        least = body.op("ReduceMin", body.op("Sigmoid", body.op("Abs", logits)), keepdims=0)
        return body.op("Equal", different, body.index(0)), least
    both = [body.op("ArgMax", one, axis=0, keepdims=0) for one in (logits, before)]
    return body.op("Equal", *both), body.op("ReduceMax", body.op("Softmax", logits, axis=-1), keepdims=0)


def standard_model(config: NetworkConfig, weights: Weights, arithmetic: Arithmetic) -> onnx.ModelProto:
    """The model as other programs expect it: ``input_ids``, ``attention_mask``, ``token_type_ids`` (B, N) in.

    ``last_hidden_state`` (B, N, H) comes out and, for a head that scores texts or tokens, ``logits`` (B, L) or
    ``start_logits`` and ``end_logits`` (B, N). Layers are unrolled, the weights of shared ones stored once.
    """
    encoder, graph = config.encoder, Graph()
    write = _Writer(config, weights, arithmetic)
    segmented = takes_segments(encoder)
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if segmented else [])]
    inputs = [value_info(name, INT64, ["B", "N"]) for name in names]
    shape = graph.op("Shape", "input_ids")
    some, tokens = graph.ops("Split", [shape], 2, axis=0, num_outputs=2)
    count = graph.op("Squeeze", tokens, graph.ints(0))
    flat: Callable[[str], str] = lambda name: graph.op("Reshape", name, graph.ints(-1))  # noqa: E731
    places = graph.op("Range", graph.index(0), count, graph.index(1))
    places = flat(graph.op("Expand", graph.op("Unsqueeze", places, graph.ints(0)), shape))
    zeros = arithmetic.zeros(graph, places)
    x = write.embeddings(graph, flat("input_ids"), places, flat("token_type_ids") if segmented else None, zeros)
    hidden = graph.op("Sub", graph.number(1), graph.op("Cast", "attention_mask", to=FLOAT))
    mask = graph.op("Unsqueeze", graph.op("Mul", hidden, graph.number(HIDDEN)), graph.ints(1, 2))
    heads = graph.op("Concat", some, tokens, graph.ints(encoder.num_heads, encoder.head_width), axis=0)
    frame = write.relations(graph, heads, count, "token_type_ids" if segmented else None, mask, zeros)
    for depth in range(encoder.num_layers):
        x = write.layer(graph, x, depth, frame)
    states = graph.op("Reshape", x, graph.op("Concat", shape, graph.ints(encoder.width), axis=0))
    outputs = [value_info(graph.rename(states, "last_hidden_state"), FLOAT, ["B", "N", encoder.width])]
    if "classify" in config.heads.names:
        token = _pooled_tokens(graph, states, encoder)
        logits = write.head(graph, write.pooled(graph, token), "heads.classify.linear")
        outputs.append(value_info(graph.rename(logits, "logits"), FLOAT, ["B", len(config.heads.labels)]))
    if "span" in config.heads.names:
        both = graph.ops("Split", [write.head(graph, states, "heads.span.linear")], 2, axis=-1, num_outputs=2)
        for name, one in zip(("start_logits", "end_logits"), both, strict=True):
            value = graph.rename(graph.op("Squeeze", one, graph.ints(-1)), name)
            outputs.append(value_info(value, FLOAT, ["B", "N"]))
    return graph.model(inputs, outputs, "litebert")


def _pooled_tokens(graph: Graph, states: str, encoder: EncoderConfig) -> str:
    """(B, H) the states of the first tokens, or of the last ones that are not padding."""
    if encoder.pooled_token == "first":
        return graph.op("Gather", states, graph.index(0), axis=1)
    numbers = graph.op("CumSum", graph.op("Cast", "attention_mask", to=FLOAT), graph.index(1))
    last = graph.op("ArgMax", numbers, axis=1, keepdims=1, select_last_index=0)  # (B, 1) where the count is full first
    shape = graph.op("Concat", graph.op("Shape", last), graph.ints(encoder.width), axis=0)  # (B, 1, H)
    where = graph.op("Expand", graph.op("Unsqueeze", last, graph.ints(-1)), shape)
    return graph.op("Squeeze", graph.op("GatherElements", states, where, axis=1), graph.ints(1))
