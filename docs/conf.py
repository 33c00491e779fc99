"""How Sphinx builds the site: `python -m sphinx -W --keep-going -n docs build/site`."""

from __future__ import annotations

import gc
import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

gc.disable()  # to look for garbage in what is built until the end takes a third of the time

project = "syncswitch"
author = "the syncswitch authors"
release = version_of("syncswitch")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "option_panels",
    "sphinx_copybutton",
    "markdown_docstrings",
    "public_names",
    "generated_tables",
    "repository_pages",
]
exclude_patterns = ["extensions"]
nitpicky = True

html_theme = "furo"
html_title = "syncswitch"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False

myst_heading_anchors = 3

# What a reader copies is the command, without prompt and output.
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"

add_module_names = False  # most are private: the headings say where a name is imported from

smartquotes = False  # what stands in quotes is often code
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 80
autodoc_typehints_format = "short"
autoclass_content = "class"
napoleon_use_ivar = True
napoleon_use_rtype = False

# Names of other libraries: their documentation cannot be asked, as a build needs no network.
nitpick_ignore_regex = [
    (
        "py:.*",
        r"(collections|contextlib|datetime|numpy|optuna|pandas|pathlib|pydantic|sqlalchemy|types|typing|typing_extensions)\..*",
    ),
    # Of the standard library and of Optuna, where annotations call them by their name alone.
    ("py:class", r"Path|datetime|BaseDistribution|FrozenTrial|Study|TrialState"),
    # Their fields are the columns of `uses`, `switch_points` and `search_costs`.
    (
        "py:class",
        r"(.*\.)?(\w+Columns|PolicyUseFacts|SearchCost|StudyCost|SwitchPointStatistics|UseGuard|UseResult)",
    ),
    # Of ours, but no program needs them.
    (
        "py:class",
        r"(.*\.)?(AccuracyRange|ArraySource|FrameName|JobChoice|SearchChoice|Cluster|ConditionsChoice|LostChief|Program|RecordedRun|RunChoice|Tell|TrainerOption|TrialChoice|Watching|_Positive|_Seconds|_T)",
    ),
]
