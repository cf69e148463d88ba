"""What unit tests of several rooms share."""

from toy_letters import letter_tokenizer

__all__ = ["letter_tokenizer"]
