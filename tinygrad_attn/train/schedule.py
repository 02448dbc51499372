"""The learning rate over the budget."""

from __future__ import annotations

import math

from tinygrad_attn.train.config import TrainingConfig


def progress_at(config: TrainingConfig, step: float, seconds: float) -> float:
    """The share of the budget that is used up after `step` steps and `seconds`, at most 1.

    With both a number of steps and a time given, the one that is nearer to its end counts.
    """
    by_steps = 0.0 if config.steps is None else step / config.steps
    by_time = 0.0 if config.minutes is None else seconds / (60 * config.minutes)
    return min(max(by_steps, by_time), 1.0)


def learning_rate(config: TrainingConfig, progress: float) -> float:
    """The learning rate at `progress` from 0 to 1.

    It rises linearly from 0 within `warmup`; over what follows it stays (constant), falls on a straight line
    (linear) or on half a cosine wave (cosine), to `lr_end` of its height.
    """
    if progress < config.warmup:
        return config.lr * progress / config.warmup
    fallen = (progress - config.warmup) / (1 - config.warmup)
    if config.schedule == "constant":
        return config.lr
    height = 1 - fallen if config.schedule == "linear" else (1 + math.cos(math.pi * fallen)) / 2
    return config.lr * (config.lr_end + (1 - config.lr_end) * height)
