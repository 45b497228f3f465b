"""A store in files below a directory: read `backend`, then `log`."""
