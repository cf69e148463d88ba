"""Fine-tuning with exits: the encoder learns with the sum of the losses at all depths.

Heads that are learnt on a model that was trained for its last depth alone lose much low down. Here every depth has a
linear head while the model is fine-tuned, which learns from the labels and from the last depth's own answers; a depth
counts in proportion to its number, as in PABEE (arXiv 2006.04152). The heads are left out of the model
afterwards: ``calibrate.py`` learns better ones on the finished states.
"""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from litebert.early_exits.calibrate import make_exits
from litebert.early_exits.heads import check_kind, features_for_training
from litebert.early_exits.report import save_page
from litebert.errors import InputError
from litebert.nn.blocks import initialise
from litebert.nn.layout import Layout
from litebert.nn.network import Network
from litebert.runs import MODEL_FOLDER, Parent, update_run
from litebert.tasks.encoding import TaskBatch
from litebert.tasks.examples import TaskData
from litebert.tasks.finetune import FinetuneResult, FinetuneSettings, check_folder, finetune, prepare
from litebert.tasks.objective import SOFT_LOSSES, Outputs, TaskObjective, head_outputs, takes_segments
from litebert.tasks.predicting import load_predictor
from litebert.train.objective import Objective, Part

log = logging.getLogger(__name__)

EXIT_HEADS = "exits"  # among the heads of a network in training


@dataclass(frozen=True, kw_only=True)
class ExitTraining:
    """How exits are trained with the model. It fits ``litebert.tasks.prepare.Teaching``."""

    weight: float = 1.0  # of all depths below the last; the last has 1
    hard: float = 0.5  # weight of the labels at these; the last depth's answers have the rest
    temperature: float = 2.0  # at which answers are compared

    def begin(
        self, own: TaskObjective, network: Network, device: torch.device
    ) -> tuple[Objective, Mapping[str, float]]:
        """The objective, with a head for every depth below the last among those of the network."""
        encoder = network.config.encoder
        labels = len(network.config.heads.labels)
        heads = nn.ModuleList(nn.Linear(2 * encoder.width, labels) for _ in range(encoder.num_layers - 1))
        initialise(heads, encoder.initial_std)
        network.heads[EXIT_HEADS] = heads.to(device)
        return ExitObjective(own, self), {"exits": self.weight}

    def end(self, network: Network) -> None:
        """Without these heads again."""
        del network.heads[EXIT_HEADS]

    def facts(self) -> dict[str, Any]:
        return {"exits": asdict(self)}

    def parents(self) -> list[Parent]:
        return []


class ExitObjective:
    """The task's own loss at the last depth, and a weighted mean of the losses below it."""

    def __init__(self, own: TaskObjective, settings: ExitTraining) -> None:
        self.own, self.settings = own, settings

    def counts(self, batch: TaskBatch) -> dict[str, int]:
        return {**self.own.counts(batch), "exits": batch.num_units}

    def tensors(self, batch: TaskBatch, device: torch.device) -> dict[str, Tensor]:
        return self.own.tensors(batch, device)

    def parts(self, network: Network, tensors: Mapping[str, Tensor]) -> dict[str, Part]:
        longest, settings = self.own.bound(tensors), self.settings
        layout = Layout(tensors["starts"], tensors["positions"], longest)
        segments = tensors["segments"] if takes_segments(network) else None
        states = network.encoder.states(tensors["ids"], layout, segments)[1:]
        outputs = head_outputs(network, self.own.kind, states[-1], layout)
        parts = self.own.judge(outputs, tensors, longest)
        taught = outputs.scores.detach()
        total = torch.zeros_like(parts["task"].loss)
        heads = cast(nn.ModuleList, network.heads[EXIT_HEADS])
        for depth, (head, x) in enumerate(zip(heads, states, strict=False), start=1):
            scores = head(features_for_training(network, x, layout)).float()
            hard = self.own.judge(Outputs(scores), tensors, longest)["task"].loss
            soft = SOFT_LOSSES[self.own.kind](scores, taught, tensors, settings.temperature)
            total = total + depth * (settings.hard * hard + (1 - settings.hard) * soft)
        share = 2 / (len(heads) * (len(heads) + 1))  # 1 / (1 + 2 + ...)
        return {**parts, "exits": Part(share * total, torch.full_like(total.detach(), float("nan")))}


def finetune_with_exits(
    settings: FinetuneSettings, data: TaskData, training: ExitTraining | None = None, max_loss: float = 0.3
) -> FinetuneResult:
    """Fine-tune at all depths at once, then learn and calibrate exits and write them into the model folder."""
    check_kind(data.kind, data.name)
    check_folder(settings.out, settings.resume)
    prepared = prepare(settings, data)
    if prepared.source.network.config.encoder.num_layers < 2:
        raise InputError(f"{settings.model} has one layer and so no early exits; leave out exits")
    result = finetune(settings, data, replace(prepared, teaching=training or ExitTraining()))
    folder = settings.out / MODEL_FOLDER
    if result.status == "stopped" or not folder.is_dir():
        return result
    predictor = load_predictor(folder, device=settings.device)
    exits = make_exits(predictor, data, name=str(folder), max_loss=max_loss)
    exits.save(folder)
    report = exits.report
    update_run(settings.out, result={"exits": {"score": report.score, "mean_depth": report.mean_depth}})
    save_page(folder, report)
    ran = f"{report.mean_depth:.2f} of {report.depths} layers on average"
    chosen = f"early exits: {ran}, {report.metric} {report.score:.4f}"
    log.info("%s (all layers: %.4f)", chosen, report.full_score)
    return replace(result, notes=(*result.notes, chosen))
