"""Engines that turn texts into vectors, each run in a process of its own by ``bench inference``.

The process reads requests, one JSON object a line, and answers each with a line: how long the texts of a workload took,
in wall-clock and in processor time, and how much memory it has. What an engine needs is imported only here, where it
runs, so one that is missing or cannot read a family says so and the others go on. Vectors are means over all tokens.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
Encode = Callable[[list[str]], Vectors]
BATCH = 32  # texts of a padded batch


class Missing(Exception):  # noqa: N818  # not an error: it is reported in place of figures
    """Why an engine cannot take part."""


@dataclass(frozen=True, kw_only=True)
class EngineRequest:
    """Which engine to start, on which folders: a model for ``transformers``, and the exported one."""

    engine: str
    plain: str
    exported: str
    scratch: str
    family: str
    shared: bool  # whether layers share weights
    longest: int  # tokens at which texts are cut
    width: int
    threads: int
    depth: int | None = None


@dataclass(frozen=True)
class Engine:
    """A loaded engine, and the size of the files it has read weights from."""

    encode: Encode
    size: int


def transformers_engine(request: EngineRequest, by_length: bool = False) -> Engine:
    """``transformers`` as their examples use it: padded batches of the texts as they come, or sorted by length."""
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(request.threads)
    tokenizer = transformers.AutoTokenizer.from_pretrained(request.plain)
    model = transformers.AutoModel.from_pretrained(request.plain).eval()

    @torch.inference_mode()
    def batch(texts: list[str]) -> Vectors:
        inputs = tokenizer(texts, padding=True, truncation=True, max_length=request.longest, return_tensors="pt")
        states = model(**inputs).last_hidden_state
        mask = inputs["attention_mask"][..., None].float()
        return ((states * mask).sum(1) / mask.sum(1)).float().numpy()

    return Engine(in_batches(batch, by_length), _size(Path(request.plain), "*.safetensors"))


def transformers_sorted(request: EngineRequest) -> Engine:
    return transformers_engine(request, by_length=True)


def in_batches(batch: Encode, by_length: bool) -> Encode:
    """Batches of 32, as they come or with the longest texts first; vectors in the order of the texts."""

    def encode(texts: list[str]) -> Vectors:
        order = sorted(range(len(texts)), key=lambda number: -len(texts[number])) if by_length else range(len(texts))
        chosen = list(order)
        parts = [batch([texts[i] for i in chosen[at : at + BATCH]]) for at in range(0, len(chosen), BATCH)]
        found = np.empty((len(texts), parts[0].shape[1]), np.float32)
        found[chosen] = np.concatenate(parts)
        return found

    return encode


def padded_inputs(request: EngineRequest) -> Callable[[list[str]], dict[str, npt.NDArray[np.int64]]]:
    """The exported tokenizer, giving padded arrays under the usual names."""
    from tokenizers import Tokenizer

    folder = Path(request.exported)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tokenizer.enable_truncation(request.longest)
    tokenizer.enable_padding(
        pad_id=config["pad_token_id"], pad_token=settings["pad_token"], direction=settings["padding_side"]
    )

    def inputs(texts: list[str]) -> dict[str, npt.NDArray[np.int64]]:
        rows = tokenizer.encode_batch(texts)
        return {
            "input_ids": np.array([row.ids for row in rows], np.int64),
            "attention_mask": np.array([row.attention_mask for row in rows], np.int64),
            "token_type_ids": np.array([row.type_ids for row in rows], np.int64),
        }

    return inputs


def mean_of(states: npt.NDArray[Any], mask: npt.NDArray[np.int64]) -> Vectors:
    """(B, N, H) states to the mean (B, H) over the tokens that are not padding."""
    weights = mask[..., None].astype(np.float32)
    return (states * weights).sum(1) / weights.sum(1)


def _onnxruntime(request: EngineRequest, path: Path) -> Engine:
    """onnxruntime with its own settings and a thread for each core: sorted, padded batches."""
    ort = _needs("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = request.threads
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = {one.name for one in session.get_inputs()}
    inputs = padded_inputs(request)

    def batch(texts: list[str]) -> Vectors:
        fed = inputs(texts)
        states = session.run(["last_hidden_state"], {name: fed[name] for name in names})[0]
        return mean_of(states, fed["attention_mask"])

    return Engine(in_batches(batch, by_length=True), path.stat().st_size)


def ort_fp32(request: EngineRequest) -> Engine:
    return _onnxruntime(request, Path(request.exported, "onnx", "model.onnx"))


def ort_int8(request: EngineRequest) -> Engine:
    return _onnxruntime(request, Path(request.exported, "onnx", "model_quantized.onnx"))


def ort_int8_stock(request: EngineRequest) -> Engine:
    """onnxruntime's own dynamic quantiser on the fp32 file: what most int8 files on the Hub are."""
    if request.shared:
        raise Missing("onnxruntime's quantiser does not keep shared weights in int8")
    _needs("onnxruntime")
    quantization = _needs("onnxruntime.quantization")
    path = Path(request.scratch) / "stock.onnx"
    quantization.quantize_dynamic(
        Path(request.exported, "onnx", "model.onnx"), path, weight_type=quantization.QuantType.QInt8
    )
    return _onnxruntime(request, path)


def sentence_transformers_engine(request: EngineRequest) -> Engine:
    """sentence-transformers with ``backend="onnx"`` on the int8 file; it sorts by length itself."""
    library = _needs("sentence_transformers")
    _needs("optimum.onnxruntime", "optimum-onnx")
    import torch

    torch.set_num_threads(request.threads)
    name = "onnx/model_quantized.onnx"
    whole = library.SentenceTransformer(
        request.exported,
        backend="onnx",
        device="cpu",
        model_kwargs={"file_name": name, "provider": "CPUExecutionProvider"},
    )
    whole.max_seq_length = request.longest
    model = library.SentenceTransformer(modules=[*whole][:2], device="cpu")  # without what scales vectors to length 1

    def encode(texts: list[str]) -> Vectors:
        return np.asarray(model.encode(texts, batch_size=BATCH, show_progress_bar=False), np.float32)

    return Engine(encode, Path(request.exported, name).stat().st_size)


def fastembed_engine(request: EngineRequest) -> Engine:
    """fastembed with the exported folder as a model of one's own."""
    library = _needs("fastembed")
    description = _needs("fastembed.common.model_description")
    name = "onnx/model_quantized.onnx"
    library.TextEmbedding.add_custom_model(
        model="litebert/exported",
        pooling=description.PoolingType.MEAN,
        normalization=False,
        sources=description.ModelSource(hf="litebert/exported"),
        dim=request.width,
        model_file=name,
    )
    model = library.TextEmbedding(
        "litebert/exported", specific_model_path=request.exported, threads=request.threads, local_files_only=True
    )

    def encode(texts: list[str]) -> Vectors:
        return np.asarray(list(model.embed(texts, batch_size=BATCH)), np.float32)

    return Engine(encode, Path(request.exported, name).stat().st_size)


def openvino_engine(request: EngineRequest) -> Engine:
    """OpenVINO with int8 weights by NNCF, activations quantised while it runs: sorted, padded batches."""
    openvino, nncf = _needs("openvino"), _needs("nncf")
    core = openvino.Core()
    model = core.read_model(str(Path(request.exported, "onnx", "model.onnx")))
    model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)
    path = Path(request.scratch) / "openvino.xml"
    openvino.save_model(model, str(path))
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": request.threads,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 32,
    }
    compiled = core.compile_model(str(path), "CPU", settings)
    names = {name for one in compiled.inputs for name in one.names}
    inputs, run = padded_inputs(request), compiled.create_infer_request()

    def batch(texts: list[str]) -> Vectors:
        fed = inputs(texts)
        run.infer({name: fed[name] for name in names if name in fed})
        return mean_of(run.get_tensor("last_hidden_state").data, fed["attention_mask"])

    return Engine(in_batches(batch, by_length=True), _size(Path(request.scratch), "openvino.*"))


def ctranslate2_engine(request: EngineRequest) -> Engine:
    """CTranslate2 in int8: sorted batches, which it pads itself."""
    library = _needs("ctranslate2")
    converters = _needs("ctranslate2.converters")
    folder = Path(request.scratch) / "ctranslate2"
    try:
        converters.TransformersConverter(request.plain).convert(str(folder), quantization="int8")
    except ValueError as error:
        raise Missing(f"CTranslate2 cannot convert it: {_sentence(error)}") from None
    encoder = library.Encoder(str(folder), device="cpu", compute_type="int8", intra_threads=request.threads)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(request.exported, "tokenizer.json")))
    tokenizer.enable_truncation(request.longest)

    def batch(texts: list[str]) -> Vectors:
        rows = [row.ids for row in tokenizer.encode_batch(texts)]
        longest = max(map(len, rows))
        mask = np.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows], np.int64)
        return mean_of(np.asarray(encoder.forward_batch(rows).last_hidden_state), mask)

    return Engine(in_batches(batch, by_length=True), _size(folder, "model.bin"))


def torch_engine(request: EngineRequest) -> Engine:
    """Our torch model: packed batches, no padding."""
    import torch

    from litebert.model import load

    torch.set_num_threads(request.threads)
    model = load(request.plain, device="cpu")
    return Engine(
        lambda texts: model.encode(texts, pooling="mean", normalize=False, max_length=request.longest, progress=False),
        _size(Path(request.plain), "*.safetensors"),
    )


def runtime_engine(request: EngineRequest) -> Engine:
    """Our runtime on the exported file: a text for each thread, no torch."""
    _needs("onnxruntime")
    from litebert.runtime import MODEL, Runtime

    model = Runtime(request.exported, depth=request.depth, threads=request.threads)
    return Engine(
        lambda texts: model.encode(texts, pooling="mean", normalize=False, max_length=request.longest, progress=False),
        Path(request.exported, MODEL).stat().st_size,
    )


ENGINES: dict[str, tuple[str, Callable[[EngineRequest], Engine]]] = {
    "transformers": ("transformers, as they come", transformers_engine),
    "transformers-sorted": ("transformers, sorted by length", transformers_sorted),
    "ort-fp32": ("ONNX Runtime fp32", ort_fp32),
    "ort-int8": ("ONNX Runtime int8, our file", ort_int8),
    "ort-int8-stock": ("ONNX Runtime int8, its quantiser", ort_int8_stock),
    "sentence-transformers": ("sentence-transformers, ONNX int8", sentence_transformers_engine),
    "fastembed": ("fastembed, ONNX int8", fastembed_engine),
    "openvino": ("OpenVINO + NNCF int8", openvino_engine),
    "ctranslate2": ("CTranslate2 int8", ctranslate2_engine),
    "torch": ("litebert, torch packed", torch_engine),
    "runtime": ("litebert runtime int8", runtime_engine),
}


def _needs(module: str, package: str | None = None) -> Any:
    """A module, or why the engine cannot run."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = package or module.split(".")[0].replace("_", "-")
        if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == module.split(".")[0]:
            raise Missing(f"{name} is not installed") from None
        raise Missing(f"{name} cannot be imported: {_sentence(error)}") from None


def _sentence(error: BaseException) -> str:
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= 160 else words[:157] + "..."


def _size(folder: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in folder.glob(pattern))


def resident_bytes() -> int:
    """The memory this process has in use now."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def answer(engine: Engine, texts: list[str], repeats: int, vectors: str | None) -> dict[str, Any]:
    """Encode the texts ``repeats`` times: seconds and processor seconds of each, and the memory afterwards."""
    seconds, processor = [], []
    found: Sequence[Any] | Vectors = []
    for _ in range(repeats):
        clock, used = time.perf_counter(), time.process_time()
        found = engine.encode(texts)
        seconds.append(time.perf_counter() - clock)
        processor.append(time.process_time() - used)
    if vectors is not None:
        np.save(vectors, found)
    return {"seconds": seconds, "processor": processor, "resident": resident_bytes()}


def main() -> None:
    """Load the engine that the first argument describes, then answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not be taken for an answer

    def say(content: dict[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    request = EngineRequest(**json.loads(sys.argv[1]))
    try:
        engine = ENGINES[request.engine][1](request)
    except Missing as why:
        say({"missing": str(why)})
        return
    except Exception as error:  # whatever another library raises is why it cannot take part
        say({"missing": f"{type(error).__name__}: {_sentence(error)}"})
        return
    say({"size": engine.size})
    for line in sys.stdin:
        try:
            say(answer(engine, **json.loads(line)))
        except Exception as error:
            say({"missing": f"{type(error).__name__}: {_sentence(error)}"})
            return


def command_of(request: EngineRequest, python: str) -> list[str]:
    """The command that starts an engine."""
    return [python, "-m", "litebert_lab.bench.inference_engines", json.dumps(asdict(request))]


if __name__ == "__main__":
    main()
