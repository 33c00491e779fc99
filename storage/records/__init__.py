"""The values that pass between searcher, trainers and storage: frozen, standard library only."""
