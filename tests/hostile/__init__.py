"""What somebody who means harm can put in front of the store, and what must not come of it."""
