"""Exported models, run by onnxruntime: the same questions as to any model (``TextModel``), without torch.

On a CPU a batch gains nothing: what a token costs hardly depends on how many are computed at once. So every text is a
run of its own, without padding, on one thread, and as many run at a time as there are cores. A single text that is not
short gets all cores. No answer can depend on what else is asked, and the bits are the same either way.
"""

import os
import platform
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from litebert.config import build
from litebert.data.files import read_object
from litebert.errors import InputError
from litebert.pooling import Pooling, SentenceSettings, read_sentence_settings
from litebert.tasks.encoding import Inputs
from litebert.tasks.examples import TASK_FILE, TaskSpec
from litebert.tasks.kinds import KINDS, HeadScores
from litebert.tasks.kinds.base import EMPTY
from litebert.text.tokenizer import Encoded
from litebert.text.tokenizer_files import read_tokenizer
from litebert.text_model import Report, TextModel, Vectors

MODEL, DESCRIPTION = "litebert.onnx", "litebert.json"
POOLED: dict[Pooling, str] = {"mean": "mean", "first": "first", "pooler": "pooled"}
SEVEN_BITS = {"activation_step": np.array(1 / 63, np.float32), "activation_zero": np.array(64, np.uint8)}
# Fused, the sum before a norm is several times slower than apart.
SLOW_FUSIONS = ["SkipLayerNormFusion"]
SHORT, SHORT_ASLEEP = 8, 24  # tokens of a text that more threads do not make faster, where they wait awake or asleep
SPIN = "1000"  # microseconds that threads which share a text wait awake, for the next operator or the next text
SPIN_IS_BOUNDED = (1, 26)  # onnxruntime from here on; before, awake threads would take the cores from others for long
LONG = 128  # tokens of a text whose memory is worth giving back at once

Array = npt.NDArray[Any]


def is_exported(folder: Path) -> bool:
    """Whether a folder is one that ``litebert export`` wrote."""
    return (folder / MODEL).is_file() and (folder / DESCRIPTION).is_file()


class Runtime(TextModel):
    """An exported model. ``threads`` texts are read at a time (default: as many as there are cores).

    ``activation_bits`` is 8, or 7 for processors whose integer instructions overflow with 8 (x86 without VNNI);
    default: what this processor needs. ``frugal`` gives the memory of a long text back after it was read, so that what
    is resident does not depend on the longest text ever read; long texts take a tenth more time.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        depth: int | None = None,
        threads: int | None = None,
        activation_bits: int | None = None,
        frugal: bool = False,
    ) -> None:
        place = Path(folder)
        self.name = str(folder)
        self._about = read_description(place)
        self.num_layers, self.width = int(self._about["num_layers"]), int(self._about["width"])
        self.max_positions, self.heads = self._about["max_positions"], tuple(self._about["heads"])
        self.tokenizer = read_tokenizer(place, self._about["family"])
        self.task = read_task(place)
        self._sentence = read_sentence_settings(place)[0] or SentenceSettings()
        self.threads = threads or os.cpu_count() or 1
        self.activation_bits = activation_bits or (8 if has_wide_integer_sums() else 7)
        if self.activation_bits not in (7, 8):
            raise InputError(f"activation_bits is {activation_bits} but must be 7 or 8")
        self._sessions = _Sessions(place / MODEL, self.threads, self._seven_bits())
        self._after_long = _giving_back() if frugal else None
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="litebert")
        self.depth = None if depth is None else self._depth(depth)

    def __repr__(self) -> str:
        bits = {32: "fp32", 8: "int8", 4: "int4"}[self._about["bits"]]
        made_for = f", task={self.task.task or self.task.kind!r}" if self.task else ""
        family = self._about["family"]
        return f"Runtime({self.name!r}, family={family!r}, layers={self.num_layers}, {bits}{made_for})"

    def _seven_bits(self) -> bool:
        """Whether to quantise activations to 7 bits, where the file quantises them and can be told."""
        quantised = self._about["bits"] != 32 and self._about["activations"] == "token"
        return bool(quantised) and self.activation_bits == 7

    def at_depth(self, depth: int) -> "Runtime":
        """The same model that runs only its first layers unless a call names another depth."""
        if depth < 1:
            raise InputError(f"depth is {depth} but must be 1 or more")
        found = copy(self)
        found.depth = self._depth(depth)
        return found

    @property
    def any_depth(self) -> bool:
        """Whether a call may name a depth: whether its layers are one shared block."""
        return bool(self._about["any_depth"])

    @property
    def has_exits(self) -> bool:
        return bool(self._about.get("exits"))

    def _depth(self, depth: int | None) -> int | None:
        found = super()._depth(depth)
        if found is not None and found != self.num_layers and not self._about["any_depth"]:
            raise InputError(
                f"depth is {found} but this file always runs its {self.num_layers} layers, which are not one shared "
                "block; export the model at that depth"
            )
        return found

    # What it computes

    def _run(
        self, session: Any, outputs: Sequence[str], ids: Any, segments: Any, depth: int | None, **more: Array
    ) -> list[Array]:
        """The outputs of these names for one input."""
        fed: dict[str, Array] = {"input_ids": np.asarray(ids, np.int64), **more}
        if self._about["segments"]:
            fed["segments"] = np.asarray(segments, np.int64)
        if depth is not None and self._about["any_depth"]:
            fed["depth"] = np.array(depth, np.int64)
        return session.run(list(outputs), fed, self._after_long if len(ids) > LONG else None)

    def _each(self, function: Callable[[int, Any], Any], lengths: Sequence[int], report: Report) -> None:
        """Call a function with the number of each input and the session to run it, the longest inputs first."""
        sessions = self._sessions
        if len(lengths) == 1:
            sessions.alone(lambda session: function(0, session), lengths[0])
            return
        if self.threads == 1:  # in the thread that asks: a server has threads of its own
            for number in range(len(lengths)):
                function(number, sessions.one)
                report(number + 1)
            return
        longest_first = sorted(range(len(lengths)), key=lambda number: -lengths[number])
        for done, _ in enumerate(self._pool.map(lambda number: function(number, sessions.one), longest_first), 1):
            report(done)

    def _vectors(
        self, inputs: Sequence[Encoded], pooling: Pooling, depth: int | None, batch_tokens: int, report: Report
    ) -> Vectors:
        found = np.empty((len(inputs), self.width), np.float32)
        output = POOLED[pooling]

        def run(number: int, session: Any) -> None:
            one = inputs[number]
            found[number] = self._run(session, [output], one.ids, one.segments, depth)[0]

        self._each(run, [len(one.ids) for one in inputs], report)
        return found

    def _head_scores(
        self, inputs: Inputs, depth: int | None, exits: bool | float, report: Callable[[float], None]
    ) -> HeadScores:
        assert self.task is not None
        rule = self._exit_rule(exits, depth)
        kind = KINDS[self.task.kind]
        if kind.per_token:
            names = ["start", "end", *(["answerable"] if self._about["answerable"] else [])]
        else:
            names = ["exit_logits" if rule else "logits"] if kind.head else [POOLED["mean"]]
        found: list[list[Array]] = [[] for _ in range(len(inputs))]

        def run(number: int, session: Any) -> None:
            at = slice(inputs.starts[number], inputs.starts[number + 1])
            found[number] = self._run(session, names, inputs.ids[at], inputs.segments[at], depth, **rule)

        self._each(run, inputs.lengths.tolist(), lambda done: report(done / len(inputs)))
        if kind.per_token:
            return HeadScores(*(np.concatenate(rows) for rows in zip(*found, strict=True)))
        return HeadScores(np.stack([row for [row] in found]) if found else EMPTY)

    def exit_scores(self, inputs: Inputs, report: Callable[[int], None]) -> Array:
        """(D, N, L) what the head of every depth gives for every input; at the last depth it is the model's own."""
        found: list[Array] = [np.empty(0)] * len(inputs)

        def run(number: int, session: Any) -> None:
            at = slice(inputs.starts[number], inputs.starts[number + 1])
            scores, own = self._run(
                session, ["exit_scores", "logits"], inputs.ids[at], inputs.segments[at], self.num_layers
            )
            found[number] = np.concatenate([scores[:-1], own[None]])

        self._each(run, inputs.lengths.tolist(), report)
        return np.stack(found, axis=1)

    def _exit_rule(self, exits: bool | float, depth: int | None) -> dict[str, Array]:
        """The inputs of the file that turn a rule on: the stored one, a confidence below 1, or heads that agree."""
        if exits is False:
            return {}
        stored = self._about.get("exits")
        if not stored:
            raise InputError(f"{self.name} has no early exits; export a model that has (`litebert exits`)")
        if depth is not None:
            raise InputError(f"depth is {depth}, but with exits every text has its own depth; leave out one of them")
        if exits is True:
            rule, value = stored["rule"], stored["value"]
        else:
            rule, value = ("confidence" if exits < 1 else "patience"), exits
        if value <= 0 or (rule == "patience" and value != int(value)):
            raise InputError(
                f"exits is {exits:g} but must be True (the stored rule), a confidence below 1, or the number of heads "
                "that must agree"
            )
        if rule == "depth":  # the stored rule may be that exiting early does not pay
            return {"patience": np.array(1 << 30, np.int64)}
        return {rule: np.array(value, np.float32 if rule == "confidence" else np.int64)}

    def _likeliest(
        self, inputs: Sequence[Encoded], gaps: Sequence[Sequence[int]], top: int, depth: int | None
    ) -> list[list[list[tuple[int, float]]]]:
        found: list[list[list[tuple[int, float]]]] = [[] for _ in inputs]

        def run(number: int, session: Any) -> None:
            one = inputs[number]
            places = np.asarray(gaps[number], np.int64)
            for logits in self._run(session, ["tokens"], one.ids, one.segments, depth, positions=places)[0]:
                shares = _softmax(logits)
                best = np.argsort(-shares, kind="stable")[:top]
                found[number].append([(int(id), float(shares[id])) for id in best])

        self._check_lengths(inputs)
        self._each(run, [len(one.ids) for one in inputs], lambda _: None)
        return found

    def _in_order(self, inputs: Sequence[Encoded], depth: int | None) -> Vectors:
        found = np.empty(len(inputs), np.float32)

        def run(number: int, session: Any) -> None:
            one = inputs[number]
            found[number] = _softmax(self._run(session, ["order"], one.ids, one.segments, depth)[0])[0]

        self._each(run, [len(one.ids) for one in inputs], lambda _: None)
        return found

    def _check_lengths(self, inputs: Sequence[Encoded]) -> None:
        for number, one in enumerate(inputs):
            if self.max_positions is not None and len(one.ids) > self.max_positions:
                raise InputError(
                    f"sequence {number} has {len(one.ids)} tokens but the model has {self.max_positions} positions; "
                    "cut or split it"
                )


class _Sessions:
    """A file opened for one thread and, when it is first needed, once more for all of them."""

    def __init__(self, path: Path, threads: int, seven_bits: bool) -> None:
        self.path, self.threads, self.seven_bits = path, threads, seven_bits
        self.awake = _version(_onnxruntime()) >= SPIN_IS_BOUNDED
        self.short = SHORT if self.awake else SHORT_ASLEEP
        self.one = self._open(1)
        self._all: Any = None
        self._free = Lock()

    def alone(self, run: Callable[[Any], Any], length: int) -> None:
        """Run one input on all threads, or on one where it is short or another input has them."""
        if self.threads == 1 or length <= self.short or not self._free.acquire(blocking=False):
            run(self.one)
            return
        try:
            self._all = self._all or self._open(self.threads)
            run(self._all)
        finally:
            self._free.release()

    def _open(self, threads: int) -> Any:
        ort = _onnxruntime()
        settings = ort.SessionOptions()
        settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
        self._let_threads_wait(settings, awake=threads > 1 and self.awake)
        if threads < self.threads:  # several texts run in it side by side, and would wait for the lock of an arena
            settings.enable_cpu_mem_arena = False
        settings.enable_mem_pattern = False  # one is kept for every length, so memory would grow with each new one
        settings.log_severity_level = 3
        if self.seven_bits:
            self._kept = {name: ort.OrtValue.ortvalue_from_numpy(value) for name, value in SEVEN_BITS.items()}
            for name, value in self._kept.items():
                settings.add_initializer(name, value)
        try:
            return ort.InferenceSession(
                str(self.path), settings, providers=["CPUExecutionProvider"], disabled_optimizers=SLOW_FUSIONS
            )
        except Exception as error:  # onnxruntime has its own kinds for each of its modules
            raise InputError(
                f"{self.path} cannot be loaded ({' '.join(str(error).split())[:200]}); export the model again"
            ) from None

    @staticmethod
    def _let_threads_wait(settings: Any, awake: bool) -> None:
        """How threads wait for the next operator: asleep, or awake for a moment, as waking up takes as long as one."""
        settings.add_session_config_entry("session.intra_op.allow_spinning", "1" if awake else "0")
        if awake:
            settings.add_session_config_entry("session.intra_op.spin_duration_us", SPIN)


def _version(ort: Any) -> tuple[int, ...]:
    return tuple(int(part) for part in ort.__version__.split(".")[:2])


def _onnxruntime() -> Any:
    """onnxruntime, which since 1.29 reports names and hashes of models to Microsoft unless it is told not to."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read when it is first imported
    try:
        import onnxruntime
    except ImportError:
        raise InputError(
            "exported models are run by onnxruntime; install it with pip install 'litebert[runtime]'"
        ) from None
    return onnxruntime


def _giving_back() -> Any:
    """What tells onnxruntime to give memory back after a run."""
    options = _onnxruntime().RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


def has_wide_integer_sums() -> bool:
    """Whether this processor adds products of 8-bit integers without overflow: x86 with VNNI, and all others."""
    if platform.machine().lower() not in ("x86_64", "amd64", "x86", "i686"):
        return True
    try:
        return "vnni" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False  # not Linux: unknown, so take what is always right


def _softmax(logits: Array) -> Array:
    shares = np.exp(logits.astype(np.float64) - float(logits.max()))
    return shares / shares.sum()


def read_description(folder: Path) -> dict[str, Any]:
    """What ``litebert.json`` says of an exported folder."""
    path = folder / DESCRIPTION
    try:
        about = read_object(path, "export the model again")
        needed = {"family", "num_layers", "width", "max_positions", "segments", "any_depth", "heads", "bits"}
        if not needed <= about.keys():
            raise ValueError("fields are missing")
    except FileNotFoundError:
        raise InputError(
            f"{folder} is not an exported model: it has no {DESCRIPTION}; make one with `litebert export`"
        ) from None
    except ValueError as error:
        raise InputError(f"{path} cannot be used ({error}); export the model again") from None
    if about.get("format") != 1:
        raise InputError(
            f"{path} has format {about.get('format')}; this litebert reads format 1, so export the model again"
        )
    return about


def read_task(folder: Path) -> TaskSpec | None:
    """The task of an exported folder, where it has one."""
    path = folder / TASK_FILE
    if not path.is_file():
        return None
    try:
        return build(TaskSpec, read_object(path, "export the model again"))
    except ValueError as error:
        raise InputError(f"{path} cannot be used ({error}); export the model again") from None
