from .bags import Bags as Bags
from .files import BagsWriter as BagsWriter
