from .edge import export_cpp as export_cpp
from .explanation import Explanation as Explanation
from .feature_sets import write_features as write_features
from .model import Head as Head
from .model import Model as Model
from .model import PathErrors as PathErrors
from .onnx import export_onnx as export_onnx
