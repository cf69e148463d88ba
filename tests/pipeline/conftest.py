"""What tests of whole commands share."""

from toy_stories import store

__all__ = ["store"]
