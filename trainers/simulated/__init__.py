"""A cluster on a virtual clock: real gradients, true staleness, the same protocols."""
