from .icicle import Tree as Tree
from .icicle import TreeRow as TreeRow
from .pictures import mosaic as mosaic
from .pictures import photograph as photograph
from .pictures import thumbnail as thumbnail
