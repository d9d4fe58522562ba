from .bags import Bags as Bags
from .writer import BagsWriter as BagsWriter
