"""htk: profiling and trace analysis for training and serving on many GPUs."""
