from .clusters import connected as connected
from .searching import search as search
from .sums import class_sums as class_sums
from .sums import cooccurrence as cooccurrence
from .sums import gram as gram
from .sums import sketch as sketch
from .sums import statistics as statistics
