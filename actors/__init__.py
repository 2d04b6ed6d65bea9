"""What an actor is: the pure core, then the Trio actor. Imports nothing else of ours.

Read in this order:

errors      every error a caller can meet, by whose fault it is
events      Event and the core events, and the Envelope around one
notices     what may be heard of but is never kept
facts       the events of the shipped plugins
codec       events <-> bytes, envelopes <-> lines
model       Prompt, Reply, the Model protocol
fold        Projection, replay, and sequences that grow without copying
books       the built-in folds: queue, history, turn, usage, mode, children
schema      one type, two uses: decoder and JSON schema
tool        a function as a tool
plugin      Plugin, Hook, View, Alarm: all that a plugin author imports
messages    what goes into a mailbox, and the answers
phase       phase x message -> (action, next phase): the table
childspec   restart arithmetic in OTP's words
store       the Store protocol: what becomes durable, and when it is said
"""
