from . import criteria as criteria
from . import kernels as kernels
from .errors import BagwiseError as BagwiseError
from .merging.divisive import DivisiveMerger as DivisiveMerger
from .merging.hashing import HashMerger as HashMerger
from .merging.hierarchy import Hierarchy as Hierarchy
from .merging.merge import MergingInterrupted as MergingInterrupted
from .merging.merge import merge_words as merge_words
from .merging.sketching.sketch import Sketch as Sketch
from .merging.sketching.sketch_merger import SketchMerger as SketchMerger
from .merging.warmup import warmup as warmup
from .merging.word_merger import WordMerger as WordMerger
from .merging.word_merger_cv import WordMergerCV as WordMergerCV
from .selection import MinRedundancyMaxRelevance as MinRedundancyMaxRelevance

__version__: str
