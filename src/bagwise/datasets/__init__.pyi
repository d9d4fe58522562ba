from .cells import make_cells as make_cells
from .corpus import make_corpus as make_corpus
from .fetching import fetch_20newsgroups as fetch_20newsgroups
from .fetching import fetch_openml as fetch_openml
from .photos import load_digit_images as load_digit_images
from .photos import make_photos as make_photos
from .writing import write_dataset as write_dataset
