"""What keeps actors running: supervisors, stores, models and doors; the only home of asyncio.

Read in this order:

clock       wall time, steady time, and virtual time that waits for the host
crossing    what crosses the border between asyncio and Trio
guest       the one Trio run of a thread, and the two crossings
lag         how late each loop wakes
children    what a supervisor says of its children
supervisor  keeps children alive
doors       what people and programs meet the runtime through
"""
