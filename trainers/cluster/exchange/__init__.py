"""What moves the numbers of a training: a parameter server, workers, and the wires between them."""
