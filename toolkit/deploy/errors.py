"""What keeps a release from a board."""

from __future__ import annotations

from ..errors import FastCarError

__all__ = ["DeployError"]


class DeployError(FastCarError):
    """A board cannot be reached, cannot take the release, or what arrived there is not what was sent."""
