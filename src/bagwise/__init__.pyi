from . import criteria as criteria
from . import distributed as distributed
from . import kernels as kernels
from .errors import BagwiseError as BagwiseError
from .merging.divisive import DivisiveMerger as DivisiveMerger
from .merging.hashing import HashMerger as HashMerger
from .merging.hierarchy import Hierarchy as Hierarchy
from .merging.merge import MergingInterrupted as MergingInterrupted
from .merging.merge import merge_words as merge_words
from .merging.merge_statistics import merge_statistics as merge_statistics
from .merging.sketching.sketch import Sketch as Sketch
from .merging.sketching.sketch_merger import SketchMerger as SketchMerger
from .merging.statistics import Statistics as Statistics
from .merging.warmup import warmup as warmup
from .merging.word_merger import WordMerger as WordMerger
from .merging.word_merger_cv import WordMergerCV as WordMergerCV
from .selection import MinRedundancyMaxRelevance as MinRedundancyMaxRelevance

__version__: str
