"""Messages of any framework, as JSON: pure functions that read no store. Begin with `parse`."""
