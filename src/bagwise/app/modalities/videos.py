"""Videos: words are learned from descriptors of motion, or from frames by a network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bagwise.app.modalities.visual import VisualModality

if TYPE_CHECKING:
    from bagwise.app.options import FitOptions

__all__ = ["VideoModality"]

_N_FRAMES = 16  # of a video that a network describes


class VideoModality(VisualModality):
    """Files of videos."""

    name = "videos"
    partition_rows = 8
    most_learned_from = 500
    default_descriptor = "hog-hof"

    def _sizes(self, descriptor: Any, options: FitOptions) -> dict[str, Any]:
        return {"n_frames": options.n_frames or _N_FRAMES} if "n_frames" in descriptor.rules() else {}
