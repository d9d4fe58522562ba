from .free_energy import FreeEnergyScore as FreeEnergyScore
from .free_energy_kernel import FreeEnergyKernel as FreeEnergyKernel
from .latent_dirichlet import LatentDirichlet as LatentDirichlet
from .naive_bayes import LatentDirichletNB as LatentDirichletNB
from .plsa import PLSA as PLSA
