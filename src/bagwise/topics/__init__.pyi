from .free_energy import FreeEnergyKernel as FreeEnergyKernel
from .free_energy import FreeEnergyScore as FreeEnergyScore
from .latent_dirichlet import LatentDirichlet as LatentDirichlet
from .naive_bayes import LatentDirichletNB as LatentDirichletNB
from .plsa import PLSA as PLSA
