from .base import Describing as Describing
from .base import Descriptor as Descriptor
from .dense_sift import DenseSIFT as DenseSIFT
from .sentence_splitting import split_sentences as split_sentences
from .sentences import SentenceVectors as SentenceVectors
from .video import VideoHogHof as VideoHogHof
from .words import WordCounts as WordCounts
