"""Show the sessions of a store: as pages for people, and as tools for agents. No session is changed."""
