"""Session logs on disk, as bytes. Begin with `format`, `names`, `disk`, `segment_reader` and `writer`."""
