"""Exported model folders: ONNX files, and all that is needed to run them without torch.

``litebert.onnx`` is for our runtime, ``litebert.json`` says what is in it. ``onnx/model.onnx`` (fp32) and
``onnx/model_quantized.onnx`` (int8) have the usual inputs and outputs, for sentence-transformers, fastembed,
transformers.js and others. Tokenizer, config, task and pooling stand beside them, as in any model folder.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from litebert.checkpoints.folder import config_text
from litebert.early_exits.calibrate import recalibrated
from litebert.early_exits.heads import ExitReport
from litebert.errors import InputError
from litebert.exporting.graph import Activations, Arithmetic
from litebert.exporting.network import ExitHeads, is_loop, standard_model, takes_segments, text_model
from litebert.nn.network import NetworkConfig
from litebert.runs import Parent, new_folder, write_run
from litebert.runtime import DESCRIPTION, MODEL, Runtime
from litebert.terminal import ProgressBar

if TYPE_CHECKING:
    from litebert.model import Model

log = logging.getLogger(__name__)

FORMAT = 1  # of litebert.json
Bits = Literal[32, 8, 4]


@dataclass(frozen=True)
class Exported:
    """An exported folder: its files with their sizes in bytes, and what could not be exported."""

    folder: Path
    files: Mapping[str, int]
    notes: tuple[str, ...] = ()


def export_model(
    model: "Model",
    out: Path,
    *,
    bits: Bits = 8,
    activations: Activations = "token",
    standard: bool = True,
    overwrite: bool = False,
    parents: list[Parent] | None = None,
) -> Exported:
    """Write a model's ONNX files, with what belongs to them, to a new folder."""
    if model.tokenizer is None:
        raise InputError(f"{model.name} has no tokenizer, so an exported folder could not read texts; add one first")
    whole = model.cut_to_depth()
    config, tokenizer = whole.config, model.tokenizer
    weights = {name: tensor.float().cpu().numpy() for name, tensor in whole.state_dict().items()}
    chosen = Arithmetic(bits=bits, activations=activations)
    notes = _left_out(config)
    heads = _exit_heads(model) if whole is model.network else None
    if model.exits is not None and heads is None:
        notes.append("the early exits are not exported: they need one shared block, and all of its layers")

    def write_text_model(exits: ExitHeads | None) -> None:
        (folder / MODEL).write_bytes(text_model(config, weights, chosen, exits).SerializeToString())

    with new_folder(out, "export", overwrite=overwrite) as folder:
        folder.mkdir()
        write_text_model(heads)
        if standard:
            (folder / "onnx").mkdir()
            for name, arithmetic in (
                ("model.onnx", Arithmetic(bits=32)),
                ("model_quantized.onnx", Arithmetic(activations=activations)),
            ):
                made = standard_model(config, weights, arithmetic)
                (folder / "onnx" / name).write_bytes(made.SerializeToString())
        tokenizer.save(folder)
        _complete_tokenizer(folder, model.max_length)
        for name, content in {**model.side_files(), "config.json": config_text(config)}.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(content, encoding="utf-8")
        described = _description(config, bits, activations)
        _write_description(folder, described, model.exits.report if heads and model.exits else None)
        if heads and bits != 32:
            found, note = _rule_of_file(model, folder)
            notes += [note] if note else []
            if found and found.tolerance != heads.tolerance:
                write_text_model(replace(heads, tolerance=found.tolerance))
            if found:
                _write_description(folder, described, found)
        settings = {"source": model.name, "bits": bits, "activations": activations, "standard": standard}
        write_run(folder, "export", settings, parents=parents or [])
    for note in notes:
        log.warning(note)
    files = {str(path.relative_to(out)): path.stat().st_size for path in sorted(out.rglob("*.onnx"))}
    return Exported(out, files, tuple(notes))


def _complete_tokenizer(folder: Path, max_length: int) -> None:
    """Add what programs ask for that do not read the model's config: how many tokens it takes, its special tokens."""
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    tokens = {name: token for name, token in settings.items() if name.endswith("_token")}
    settings["model_max_length"] = max_length
    for name, content in ((path.name, settings), ("special_tokens_map.json", tokens)):
        (folder / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _description(config: NetworkConfig, bits: Bits, activations: Activations) -> dict[str, Any]:
    """What the runtime needs to know about the file."""
    encoder = config.encoder
    heads = [name for name in config.heads.names if name not in _missing_heads(config)]
    return {
        "format": FORMAT,
        "family": encoder.family,
        "num_layers": encoder.num_layers,
        "width": encoder.width,
        "vocab_size": encoder.vocab_size,
        "max_positions": encoder.max_positions if encoder.positions == "absolute" else None,
        "segments": takes_segments(encoder),
        "any_depth": is_loop(encoder),
        "heads": [*heads, *(["pooler"] if config.has_pooler else [])],
        "answerable": config.heads.answerable,
        "bits": bits,
        "activations": activations,
    }


def _exit_heads(model: "Model") -> ExitHeads | None:
    """The exits of a model as the graph needs them."""
    if model.exits is None or not is_loop(model.config):
        return None
    report = model.exits.report
    weight, bias = (tensor.cpu().numpy() for tensor in (model.exits.weight, model.exits.bias))
    return ExitHeads(weight=weight, bias=bias, kind=report.kind, tolerance=report.tolerance)


def _rule_of_file(model: "Model", folder: Path) -> tuple[ExitReport | None, str]:
    """The exit rule chosen again on what the file itself gives for the held-out rows; or why it is not."""
    assert model.exits is not None and model.task is not None
    kept = "the rule of the early exits is the one chosen in fp32"
    rows = model.exits.rows
    if rows is None:
        return None, f"{kept}, which may lose more in integers: the rows it was chosen on are not in the model folder"
    if find_spec("onnxruntime") is None:
        return None, f"{kept}, which may lose more in integers: onnxruntime is not installed to try the file"
    with ProgressBar("calibrating exits", len(rows.inputs)) as bar:
        scores = Runtime(folder).exit_scores(rows.inputs, bar.update)
    return recalibrated(model.exits, scores, model.task), ""


def _write_description(folder: Path, described: Mapping[str, Any], exits: ExitReport | None) -> None:
    names = ("rule", "value", "mean_depth", "max_loss", "metric", "full_score", "score", "checked_loss", "rows")
    about = None if exits is None else {name: getattr(exits, name) for name in names}
    (folder / DESCRIPTION).write_text(json.dumps({**described, "exits": about}, indent=2) + "\n", encoding="utf-8")


def _missing_heads(config: NetworkConfig) -> dict[str, str]:
    """Heads that are not exported, and why."""
    missing = {}
    if "masked_lm" in config.heads.names and config.encoder.positions == "relative":
        missing["masked_lm"] = "an XLNet predicts missing words with a second stream of attention"
    if "replaced" in config.heads.names:
        missing["replaced"] = "replaced-token detection is for pretraining"
    return missing


def _left_out(config: NetworkConfig) -> list[str]:
    return [f"the head {name} is not exported: {why}" for name, why in _missing_heads(config).items()]
