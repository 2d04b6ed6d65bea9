"""Hooks that are commands, as the configuration names them.

Read in this order:

events    the names of the events, and which slot each takes
asks      what a command reads: one JSON object
answers   what a command said, read as a hook's answer
commands  runs a command under its keeper, and makes hooks of the configuration

A command runs in the session's folder with a short list of environment variables, under /bin/sh. On its standard input
is one JSON object: `session_id`, `turn_id`, `agent_path`, `cwd`, `hook_event_name`, `model`, `permission_mode`, and
what belongs to the event (`tool_name`, `tool_input`, `tool_use_id`, `tool_response`; `prompt`; `reason`; `cause`;
`last_assistant_message`, `stop_hook_active`). Exit 0 without output lets things go on; exit 2 refuses, with standard
error as the reason; before a turn stops, a refusal makes it go on. Exit 0 with a JSON object may say more:

    {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "not on Sundays"}}
    {"hookSpecificOutput": {"permissionDecision": "allow", "updatedInput": {"command": "ls"}}}
    {"hookSpecificOutput": {"additionalContext": "the model reads this"}, "systemMessage": "people read this"}
    {"decision": "block", "reason": "run the tests first"}
    {"continue": false, "stopReason": "enough"}

Anything else is a failed hook.
"""
