"""Decides: which training runs a search makes, and when the timing policy is known.

What programs use is listed in `__all__`: `search` finds a policy, `BinarySearchSampler` is for an
Optuna study of one's own, and the strategies are what both decide by.
"""

from typing import TYPE_CHECKING

from syncswitch.storage.lazy import lazy_names

if TYPE_CHECKING:
    from syncswitch.searcher.api import search
    from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
    from syncswitch.searcher.strategies.paper import PaperStrategy
    from syncswitch.searcher.study.sampler import BinarySearchSampler

__all__ = [
    "AdaptiveStrategy",
    "BinarySearchSampler",
    "PaperStrategy",
    "search",
]

__getattr__ = lazy_names(
    __name__,
    {
        "AdaptiveStrategy": "strategies.adaptive.strategy",
        "BinarySearchSampler": "study.sampler",
        "PaperStrategy": "strategies.paper",
        "search": "api",
    },
)
