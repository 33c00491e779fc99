"""Trials on a Ray cluster: parameter servers and workers as actors in a placement group.

The chief is a process that the searcher starts on a node of the cluster; its actors end with it.
Each node needs this package, TensorFlow and Ray, in the versions of the chief; only the chief loads
workloads. Parameter servers and the chief use no GPUs. Each of several trials at the same time has
a placement group of its own, with its own CPUs and GPUs.

Parts listen only at the addresses of their nodes, at ports that the system chooses, talk only to
processes that know their secret, and encrypt all messages. But Ray, which hands them the secret,
authenticates nobody unless it is set up to: use a cluster on a network that is closed to others.
"""
