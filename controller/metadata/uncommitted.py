"""Uncommitted: the images that decisions have made and the quorum does not have yet.

An image never changes, so the history of what is not committed is a list of images. A decision builds on the last of
them. A commit takes images from the front; the loss of the lead drops them all.

Threads: the event thread owns it.

Source: SnapshotRegistry, OffsetControlManager (Kafka 4.3), which keep one state and the changes to it.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from barnabas.controller.image import Image
from barnabas.controller.image_editor import Delta


class Step(NamedTuple):
    """The image after one batch of records, and what the batch changed."""

    image: Image
    delta: Delta


class Uncommitted:
    """The steps after the committed image, in the order of their offsets."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque()

    def __bool__(self) -> bool:
        """Return whether there is anything that is not committed."""
        return bool(self._steps)

    def append(self, image: Image, delta: Delta) -> None:
        """Add the image after a batch that was appended."""
        self._steps.append(Step(image, delta))

    def take(self, offset: int) -> tuple[Image | None, list[Delta]]:
        """Remove the steps up to `offset`, which is committed; return the last image and all changes."""
        image, deltas = None, []
        while self._steps and self._steps[0].image.offset <= offset:
            image, delta = self._steps.popleft()
            deltas.append(delta)
        return image, deltas

    def drop(self) -> None:
        """Forget everything: another controller decides now."""
        self._steps.clear()
