"""Training: fit(), and everything that only training needs."""

from unshift.training.fitting import fit

__all__ = ["fit"]
