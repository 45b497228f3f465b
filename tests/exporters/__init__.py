"""What is written for other programs is what they read."""
