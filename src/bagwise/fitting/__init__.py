"""From a folder to an answer: learn a model, evaluate it, compare criteria, and tell what was found."""

from bagwise.fitting.account import account_of
from bagwise.fitting.compare import ComparedCriterion, compare_criteria
from bagwise.fitting.evaluate import Evaluation, evaluate_model
from bagwise.fitting.fit import Fit, fit_model
from bagwise.fitting.options import FitOptions, read_config
from bagwise.fitting.plan import FitPlan, plan_fit

__all__ = [
    "ComparedCriterion",
    "Evaluation",
    "Fit",
    "FitOptions",
    "FitPlan",
    "account_of",
    "compare_criteria",
    "evaluate_model",
    "fit_model",
    "plan_fit",
    "read_config",
]
