"""The format on disk: frozen stores, the worked example, the grammar, versions."""
