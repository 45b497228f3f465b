"""One module at a time: these folders mirror `src/hansard`."""
