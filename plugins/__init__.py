"""What takes part at step boundaries: one module for each plugin. Imports actors only.

Read in this order:

checklist  what plan and todo share: items as bounded text
plan       update_plan: the checklist of a longer job
todo       todo_write: the work of the current turn
agents     spawn_agent, wait_agent, list_agents: subagents beside this one
"""
