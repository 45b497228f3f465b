"""Read a store from outside: a server of tools for agents. It changes no session."""
