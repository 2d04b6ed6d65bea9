"""Models by name, and those that need no network.

Read in this order:

scripted  the script behind scripted:demo
replay    a recorded session as a model and its tools
names     from a name to a model
"""

from callboard.runtime.models.names import ModelNames

__all__ = ["ModelNames"]
