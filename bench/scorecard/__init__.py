"""How right are the what-ifs? Predictions held against what came of it, by kind of what-if."""
