"""Modalities: images, videos, texts and tables, one file each.

Others ask ``MODALITIES[name]``, and do not compare names; `Modality` says what can be asked.
"""

from bagwise.app.modalities.base import Modality
from bagwise.app.modalities.images import ImageModality
from bagwise.app.modalities.tables import TableModality
from bagwise.app.modalities.texts import TextModality
from bagwise.app.modalities.videos import VideoModality

__all__ = ["MODALITIES", "Modality"]

MODALITIES: dict[str, Modality] = {
    one.name: one for one in (ImageModality(), VideoModality(), TextModality(), TableModality())
}
