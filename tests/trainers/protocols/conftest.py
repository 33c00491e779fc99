from __future__ import annotations

from hypothesis import settings

# On a busy machine an example may take any time.
settings.register_profile("without deadline", deadline=None)
settings.load_profile("without deadline")
