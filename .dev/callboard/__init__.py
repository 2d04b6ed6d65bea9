"""Callboard: a runtime for many AI agents at once, in one Python program.

The parts are `callboard.actors` (what an agent session is), `callboard.runtime` (what keeps sessions
running), `callboard.plugins` (plan, todo, schedule, goal and the like) and `callboard.metrics` (what is
counted).
"""

__version__ = "0.1.0"
