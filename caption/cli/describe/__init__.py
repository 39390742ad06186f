"""`caption describe`: from photos to captions, heatmaps and pages, on this machine or on a Ray cluster."""
