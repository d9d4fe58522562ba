"""Modalities: images, videos, texts and tables, one file each.

Others ask ``MODALITIES[name]``, and do not compare names; `Modality` says what can be asked.
"""

from bagwise.app.modalities.base import Modality
from bagwise.app.modalities.images import Images
from bagwise.app.modalities.tables import Tables
from bagwise.app.modalities.texts import Texts
from bagwise.app.modalities.videos import Videos

__all__ = ["MODALITIES", "Modality"]

MODALITIES: dict[str, Modality] = {one.name: one for one in (Images(), Videos(), Texts(), Tables())}
