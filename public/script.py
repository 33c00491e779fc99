"""What a training script asks of the search that runs it; the standard library alone.

```
from syncswitch import script

step = script.switch_step()
script.report(step=100, accuracy=0.91)
```
"""

from syncswitch.trainers.command import output_dir, report, seed, switch_step

__all__ = ["output_dir", "report", "seed", "switch_step"]
