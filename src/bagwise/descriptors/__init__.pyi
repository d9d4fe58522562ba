from .base import Describing as Describing
from .base import Descriptor as Descriptor
from .dense_sift import DenseSIFT as DenseSIFT
