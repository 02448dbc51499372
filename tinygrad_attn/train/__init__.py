"""Floor 6: training, evaluation, run folders, and prediction with what was trained."""

from tinygrad_attn.train.config import ConfigError, ModelConfig, TrainingConfig, default_settings
from tinygrad_attn.train.evaluation import Evaluation, evaluate
from tinygrad_attn.train.folder import RunConfig, RunFolder
from tinygrad_attn.train.guard import usual_workers, workers
from tinygrad_attn.train.loop import Result, resume, train
from tinygrad_attn.train.prediction import Prediction, Predictor, load_run

__all__ = [
    "ConfigError",
    "Evaluation",
    "ModelConfig",
    "Prediction",
    "Predictor",
    "Result",
    "RunConfig",
    "RunFolder",
    "TrainingConfig",
    "default_settings",
    "evaluate",
    "load_run",
    "resume",
    "train",
    "usual_workers",
    "workers",
]
