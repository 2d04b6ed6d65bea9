"""Logs as files and files as logs: taken out of a store, brought into one, checked, saved. Reading order:

checking   whether records are one whole log, one record after the other
lines      a file of lines: what stands in it, where it is torn, where it is damaged
export     sessions of a store as lines
history    recorded sessions of other agents as whole logs
plan       which sessions a file holds, and under which ids they come into a store
bring      the sessions of a file written into a store, all at one moment
survey     what is wrong with the sessions of a store
sqlite_survey  what is wrong with a SQLite file
salvage    what can be read of a damaged SQLite file, as a new one
"""
