"""The papers: their experiments, figures and logs. Not installed; `make papers` runs all of it."""
