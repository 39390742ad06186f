"""`caption analyse`: where models look, and whether that is why they say it; on Shapes, or on the user's photos."""
