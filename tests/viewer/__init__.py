"""What `hansard mcp` serves, over a real client."""
