"""What people and programs meet the runtime through.

board     a plan or a todo list as terminal lines
wording   how times, calls and long texts read
chapters  what plan mode, questions, reminders and goals add to a story
story     what happens, as lines for people
tally     what it came to, in one line
picture   how a tree of sessions stands right now
drawing   the picture as lines and panels
output    what is written goes out through a thread
screen    lines, and the drawing at the foot of a terminal
proposals  what is open of a session's plans
follow    one audience of a whole tree, beside others
program   the life of a command: signals, one loop, an end that comes
prompts   a question, an approval or a plan as lines, and what a typed line says
typed     lines from standard input
prompting  puts what sessions ask to people
run       callboard run
project   the small project that the demo works on
demo      callboard demo
logs      callboard log list, show
progress  how far long work has come, on a terminal
log_moves  callboard log export, import
log_care  callboard log check, repair
tree      callboard tree
bench     callboard bench
cli       the command line
"""
