"""Trials on a Ray cluster: parameter servers and workers as actors in a placement group.

The chief is a process that the searcher starts on a node of the cluster; what it has there ends
with it. Each node needs this package, TensorFlow and Ray, in the versions of the chief; workloads
are loaded by the chief alone. Parameter servers and chief use no GPUs. Ray gives each of several
trials at once a placement group, CPUs and GPUs of its own.

The parts of a cluster listen at the addresses of their nodes alone, at ports that the system
chooses, talk to nobody who does not know their secret, and encrypt what they say. But Ray, which
hands them the secret, asks nobody for a password unless it is set up to: use a cluster whose
network is closed to others.
"""
