"""What people and programs meet the runtime through.

board  a plan or a todo list as terminal lines
"""
