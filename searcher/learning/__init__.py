"""Learning from later trainings: where the next one switches, whether a policy still holds."""
