from .divisive import DivisiveMerger as DivisiveMerger
from .hashing import HashMerger as HashMerger
from .linear import ConfidenceWeightedClassifier as ConfidenceWeightedClassifier
from .selection import MinRedundancyMaxRelevance as MinRedundancyMaxRelevance
