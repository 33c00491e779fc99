"""Parameter servers, workers, and the wires that move the numbers of a training between them."""
