"""What stands on top of an encoder: the pooler, and a head per kind of question.

T tokens, S sequences, P chosen positions, H width, E embedding width, V vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from litebert.nn.blocks import ACTIVATIONS
from litebert.nn.config import EncoderConfig
from litebert.nn.layout import Layout


class Pooler(nn.Module):
    """One vector a sequence: a dense layer on its first (XLNet: last) token."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.activation = torch.tanh if config.pooler == "tanh" else F.relu
        self.token = config.pooled_token
        self.dense = nn.Linear(config.width, config.width)

    def forward(self, states: Tensor, layout: Layout) -> Tensor:
        """(T, H) states to (S, H)."""
        return self.activation(self.dense(states[layout.first if self.token == "first" else layout.last]))


class MaskedLM(nn.Module):
    """Which token was here: dense, activation, norm, then the token table and a bias (ALBERT section 3.1)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.head_activation or config.activation]
        self.dense: nn.Linear | None = None
        self.norm: nn.LayerNorm | None = None
        if config.head_transform:
            self.dense = nn.Linear(config.width, config.embedding_width)
            self.norm = nn.LayerNorm(config.embedding_width, eps=config.norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.table: nn.Embedding | None = None
        if not config.tied:
            self.table = nn.Embedding(config.vocab_size, config.embedding_width)

    def forward(self, states: Tensor, token_table: Tensor) -> Tensor:
        """(P, H) states at the positions asked about to (P, V) logits; ``token_table`` is the encoder's."""
        return F.linear(*self.factors(states, token_table))

    def factors(self, states: Tensor, token_table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the logits are made of, for those who need not hold them all: (P, E) states, (V, E) table, (V) bias."""
        if self.dense is not None and self.norm is not None:
            states = self.norm(self.activation(self.dense(states)))
        return states, token_table if self.table is None else self.table.weight, self.bias


class ReplacedHead(nn.Module):
    """Was this token replaced: dense, activation, one logit a token, positive for yes (ELECTRA section 2)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.dense = nn.Linear(config.width, config.width)
        self.score = nn.Linear(config.width, 1)

    def forward(self, states: Tensor) -> Tensor:
        """(T, H) states to (T) logits."""
        return self.score(self.activation(self.dense(states))).squeeze(-1)


class SentenceOrder(nn.Module):
    """Are the two segments in order (0) or swapped (1)? For NSP: is the second one next (0) or random (1)?"""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, 2)

    def forward(self, pooled: Tensor) -> Tensor:
        return self.linear(pooled)


class Classifier(nn.Module):
    """Scores of a sequence's labels; with one label, regression."""

    def __init__(self, config: EncoderConfig, num_labels: int) -> None:
        super().__init__()
        self.dropout = config.classifier_dropout
        self.linear = nn.Linear(config.width, num_labels)

    def forward(self, pooled: Tensor) -> Tensor:
        """(S, H) to (S, labels)."""
        return self.linear(F.dropout(pooled, self.dropout, self.training))


class MultipleChoice(nn.Module):
    """One score for each (passage, question, answer) input; the choices of a question are neighbouring sequences."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dropout = config.classifier_dropout
        self.linear = nn.Linear(config.width, 1)

    def forward(self, pooled: Tensor, num_choices: int) -> Tensor:
        """(questions * choices, H) to (questions, choices)."""
        return self.linear(F.dropout(pooled, self.dropout, self.training)).view(-1, num_choices)


class Span(nn.Module):
    """Where an answer starts and ends; with ``answerable``, also whether there is one (ALBERT appendix A.4)."""

    def __init__(self, config: EncoderConfig, answerable: bool) -> None:
        super().__init__()
        self.dropout = config.classifier_dropout
        self.linear = nn.Linear(config.width, 2)
        self.answerable = nn.Linear(config.width, 1) if answerable else None

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """(T, H) states to the start and end logits (T) of every token."""
        start, end = self.linear(states).unbind(-1)
        return start, end

    def has_answer(self, states: Tensor, layout: Layout) -> Tensor:
        """(S) logit that the question has an answer in its text, read off the first token."""
        assert self.answerable is not None
        first = F.dropout(states[layout.first], self.dropout, self.training)
        return self.answerable(first).squeeze(-1)
