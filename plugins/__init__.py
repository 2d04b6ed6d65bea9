"""What takes part at step boundaries: one module for each plugin. Imports actors only.

Read in this order:

checklist  what plan and todo share: items as bounded text
plan       update_plan: the checklist of a longer job
todo       todo_write: the work of the current turn
agents     spawn_agent, wait_agent, list_agents: subagents beside this one
keeper     the program that runs one command and lets nothing of it outlive its end
excerpt    text of any length in bounded memory: head and tail
commands   one command under its keeper, seen from Trio
background  the commands that a session runs beside its turns
shell      shell, shell_output, shell_kill: commands in the user's shell
places     where a path leads, and files opened there without following a link
files      read_file, write_file, edit_file: text files inside the session's folder
"""
