"""What keeps actors running: supervisors, stores, models and doors; the only home of asyncio.

Read in this order:

clock        the wall clock, the steady clock, and virtual time for a whole runtime
crossing     what crosses the border between asyncio and Trio
rounds       who calls Trio's rounds, and where a guest sleeps
guest        one Trio run in the host's loop, and the two crossings
lag          how late both loops wake
vitals       what a runtime's health is told from
garbage      when garbage is collected, and what is kept out of it
waiting      one answer, waited for from either loop
children     how a supervised child is described and how it ended
supervisor   starts children, restarts them, gives up loudly
settings     what the tables of a configuration may hold
config       RuntimeConfig from TOML, all mistakes at once
lookup       what a store knows of sessions without loading them
reading      a reader of one session: log first, then live
knots        who would wait for itself
registry     which sessions there are, live or passivated; a message to one that left brings it back
fork         a new session that begins as another does
calendar     wakes sessions of the store that come due while nobody has them open
sweep        asks sessions that rest for long to leave memory
admission    which agent may start or go on in a tree, and the books of one tree
recount      what a tree has used and started, counted from the store
trees        the books of all open trees; who begins, who waits, whose budget is used up
below        the turn of one agent whose end the turn of somebody above waits for
birth        how the log of a subagent begins
company      how the agents of a tree stand, and what one of them may have done to those below it
spawn        the Spawner: starts subagents, and carries their ends to their parents
revival      what a session from the store hears of its agents
hooks/       hooks that are commands, as the configuration names them
recordings/  recorded sessions of other agents
stores/      where logs become durable
models/      models by name, and those that need no network
assembly     plugins, tools and hooks put together and checked
arguments    what is passed to open_runtime and create, checked
logs/        logs as files, and files as logs
lines        slash and `!` lines, and which verb each is
shown        what `state()` shows of folds that keep more or less than people should read
outside      subagents that a program starts, as a tool would
handle       SessionHandle: a session as people hold it
post         mail between the sessions of one tree
handover     approved plans become the first messages of new sessions
tracing      spans go to an OpenTelemetry collector
ground       what a runtime stands on: Trio run, store, metrics, nursery
connections  the configured servers of tools, and their tools in the catalogue
place        one live session as its supervisor and its actor see it
troupe       under which supervisor each session stands
onebyone     what is done to one session is done one after the other
endings      how sessions leave: stopped level by level, crashed and buried, forgotten
sessions     all sessions: created, opened, revived
nodes        the supervision tree as plain data, in slices
peek         a local socket at which other programs ask for it
looks        what a runtime tells of itself
app          open_runtime: the composition root
sync         run_sync: a runtime for a program without an event loop
doors/       what people and programs meet the runtime through
"""

from callboard.plugins import DEFAULT
from callboard.runtime.app import Runtime, open_runtime, serve_metrics
from callboard.runtime.config import RuntimeConfig, load_config
from callboard.runtime.handle import SessionHandle
from callboard.runtime.settings import ModelConfig
from callboard.runtime.sync import run_sync

__all__ = [
    "DEFAULT",
    "ModelConfig",
    "Runtime",
    "RuntimeConfig",
    "SessionHandle",
    "load_config",
    "open_runtime",
    "run_sync",
    "serve_metrics",
]
