"""Decides: which training runs a search makes, and when the timing policy is known.

What programs use is listed in `__all__`: `search` finds a policy, `BinarySearchSampler` is for an
Optuna study of one's own, and the rules are what both decide by.
"""

from typing import TYPE_CHECKING

from syncswitch.storage.lazy import lazy_names

if TYPE_CHECKING:
    from syncswitch.searcher.api import search
    from syncswitch.searcher.strategies.adaptive import AdaptiveRule
    from syncswitch.searcher.strategies.paper import PaperRule
    from syncswitch.searcher.strategies.sequential import SequentialRule
    from syncswitch.searcher.study.sampler import BinarySearchSampler

__all__ = ["AdaptiveRule", "BinarySearchSampler", "PaperRule", "SequentialRule", "search"]

__getattr__ = lazy_names(
    __name__,
    {
        "AdaptiveRule": "strategies.adaptive",
        "BinarySearchSampler": "study.sampler",
        "PaperRule": "strategies.paper",
        "SequentialRule": "strategies.sequential",
        "search": "api",
    },
)
