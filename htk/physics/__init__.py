"""Cost models shared by the simulator, the what-ifs and the analyses."""
