"""Decides which training runs a search makes, and when the timing policy is known.

`BinarySearchSampler` is for an Optuna study of your own; it and every search decide by one of the
strategies. `fit` trains a compiled Keras model and learns from it; the commands as Python functions
are in `syncswitch.searcher.api`.
"""

from typing import TYPE_CHECKING

from syncswitch.storage.lazy import lazy_names

if TYPE_CHECKING:
    from syncswitch.searcher.search.sampler import BinarySearchSampler
    from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
    from syncswitch.searcher.strategies.paper import PaperStrategy
    from syncswitch.searcher.training.fit import fit

__all__ = ["AdaptiveStrategy", "BinarySearchSampler", "PaperStrategy", "fit"]

__getattr__ = lazy_names(
    __name__,
    {
        "search.sampler": "BinarySearchSampler",
        "strategies.adaptive.strategy": "AdaptiveStrategy",
        "strategies.paper": "PaperStrategy",
        "training.fit": "fit",
    },
)
