"""The parts of the policy registry; `policies.py` and `policy_file.py` are its faces."""
