"""The adapters, each with its real framework: a module per framework, since importing one takes seconds."""
