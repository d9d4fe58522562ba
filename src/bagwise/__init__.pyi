from . import criteria as criteria
from . import kernels as kernels
from .bags import Bags as Bags
from .bags_writer import BagsWriter as BagsWriter
from .descriptors.dense_sift import DenseSIFT as DenseSIFT
from .descriptors.sentences import SentenceVectors as SentenceVectors
from .descriptors.video import VideoHogHof as VideoHogHof
from .descriptors.words import WordCounts as WordCounts
from .errors import BagwiseError as BagwiseError
from .merging.divisive import DivisiveMerger as DivisiveMerger
from .merging.hashing import HashMerger as HashMerger
from .merging.hierarchy import Hierarchy as Hierarchy
from .merging.merge import MergingInterrupted as MergingInterrupted
from .merging.merge import merge_words as merge_words
from .merging.warmup import warmup as warmup
from .merging.word_merger import WordMerger as WordMerger
from .merging.word_merger_cv import WordMergerCV as WordMergerCV
from .selection import MinRedundancyMaxRelevance as MinRedundancyMaxRelevance
from .sources.collection import Collection as Collection
from .sources.opening import open_collection as open_collection

__version__: str
