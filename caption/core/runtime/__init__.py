"""What every room may use: files, signals, progress, look-ahead in threads, processes, Ray."""
