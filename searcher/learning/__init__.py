"""What later trainings teach: where the next one switches, and whether a policy still holds."""
