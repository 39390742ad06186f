"""Preparing downloaded data sets: the folders that the configurations expect."""
