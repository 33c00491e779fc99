"""The digits at a rate that all protocols bear."""

from dataclasses import replace

from syncswitch.trainers.workloads import digits

workload = replace(
    digits.workload, name="gentle-digits", learning_rate=0.01, momentum_after_switch="same"
)
