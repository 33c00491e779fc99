"""The chief of a cluster: hands out steps, keeps copies of the state, and recovers from losses."""
