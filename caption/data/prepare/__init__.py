"""Preparing downloaded data sets: checking them, and laying out the folders that the configurations expect."""
