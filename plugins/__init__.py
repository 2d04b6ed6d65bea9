"""What takes part at step boundaries: one module for each plugin. Imports actors only.

Read in this order:

checklist  what plan and todo share: items as bounded text
model      /model: another model for a session
plan       update_plan: the checklist of a longer job
todo       todo_write: the work of the current turn
proposed   takes the plan out of what a model says in Plan mode
handovers  approved plans on their way to whoever carries them out
plan_mode  look and plan, and exit_plan_mode: leave by a plan that the user approves
approvals  which calls need the user's approval; /approvals
ask        request_user_input: questions to the user, and the plugin that brings approvals
goalbook   what a log says of its goal
goals      what may be done to a goal, and what its next round is
goal       get_goal, create_goal, update_goal, /goal, and the rounds of a goal
rules      when something is due: seconds, local times in a zone, cron
reminders  the reminders of a session, what is due of them, and how it is told
schedule   schedule_create, schedule_list, schedule_delete: reminders that come due by themselves
standings  how agents are named in calls, and how their standings are shown
orders     what the tools for agents take, answer, say and refuse
agents     spawn_agent and the other tools of agents that have agents: talk to them, wait for them, end them; report
keeper     the program that runs one command and lets nothing of it outlive its end
excerpt    text of any length in bounded memory: head and tail
commands   one command under its keeper, seen from Trio
background  the commands that a session runs beside its turns
shell      shell, shell_output, shell_kill: commands in the user's shell
usershell  the user's own commands, as the runtime lends them to sessions
places     where a path leads, and files opened there without following a link
files      read_file, write_file, edit_file: text files inside the session's folder
search     tool_search: finds tools that are offered only once they were found
runner     the program that runs a model's code, and calls tools from there
frames     messages between that program and this one: a length, then JSON
code       code: Python that calls the other tools
mcp_tools  what a server says of its tools, as tools of ours
mcp_results  what a server answers to a call, as text
mcp_lines  messages of a server over its standard output
mcp_server  how a server is configured, and what it is given of secrets
mcp_program  a server that is a program, under a keeper
mcp_talk   one call on its way; when a lost server is tried again
mcp_session  the SDK: one initialised connection; imported in a thread
mcp        a connection to a server of tools: opened, kept, closed
"""

from callboard.plugins.agents import AGENTS_PLUGIN
from callboard.plugins.ask import ASK_PLUGIN
from callboard.plugins.code import CODE
from callboard.plugins.files import FILES
from callboard.plugins.goal import GOAL_PLUGIN
from callboard.plugins.plan import PLAN_PLUGIN
from callboard.plugins.plan_mode import PLAN_MODE_PLUGIN
from callboard.plugins.schedule import SCHEDULE_PLUGIN
from callboard.plugins.shell import SHELL
from callboard.plugins.todo import TODO_PLUGIN

DEFAULT = (PLAN_PLUGIN, TODO_PLUGIN, PLAN_MODE_PLUGIN, ASK_PLUGIN, SCHEDULE_PLUGIN, GOAL_PLUGIN, AGENTS_PLUGIN)
"""What a runtime has unless it is told otherwise; nothing here touches the machine."""

MACHINE = (SHELL, FILES)
"""Commands and files: for programs whose agents may use the machine, as `(*DEFAULT, *MACHINE)`."""

__all__ = [
    "AGENTS_PLUGIN",
    "ASK_PLUGIN",
    "CODE",
    "DEFAULT",
    "FILES",
    "GOAL_PLUGIN",
    "MACHINE",
    "PLAN_MODE_PLUGIN",
    "PLAN_PLUGIN",
    "SCHEDULE_PLUGIN",
    "SHELL",
    "TODO_PLUGIN",
]
