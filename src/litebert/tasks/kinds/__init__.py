"""The five kinds of task, one object each; whatever depends on the kind of a task asks ``KINDS[kind]``."""

from collections.abc import Mapping

from litebert.tasks.examples import Kind
from litebert.tasks.kinds.base import HeadScores, LabelScore, TaskKind
from litebert.tasks.kinds.choice import Choice
from litebert.tasks.kinds.classify import Classify
from litebert.tasks.kinds.multilabel import Multilabel
from litebert.tasks.kinds.regress import Regress
from litebert.tasks.kinds.span import Span

__all__ = ["KINDS", "HeadScores", "LabelScore", "TaskKind"]

KINDS: Mapping[Kind, TaskKind] = {kind.name: kind for kind in (Classify(), Multilabel(), Regress(), Choice(), Span())}
