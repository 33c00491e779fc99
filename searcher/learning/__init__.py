"""Learning from a job's trainings: the switch of the next one, and the policies that follow.

The first run of a job without a policy switches where the time of all runs to come is least, by
what jobs like it show, and is published as a policy. The runs after it are recorded as uses of that
policy, whatever their switch. Where they show that another switch takes less time, or have measured
what the first protocol alone reaches, that is published as the next version.
"""
