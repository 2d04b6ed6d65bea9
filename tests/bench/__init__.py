"""The benchmarks: Callboard beside a hand-written floor of each workload, in the same run; `python -m tests.bench`.

A floor is the least code that does the same on the same libraries: a limit to come near to, not a product. Figures of
two machines, or of two days, say little; the ratio of a row and its floor says what Callboard itself costs.

Read in this order:

measure       clocks, percentiles, memory, the machine's speed right now
row           a row of the table: its two sides, sizes and goals; rounds that take turns
guest         a stock Trio guest run, for the floors
sides         the runtimes, models and tools of Callboard's side
lags          how late both loops are while something else is measured
floor_step    a step by hand, with a group-commit store of its own
rows_step     what a step costs
rows_growth   how that grows: with the length of the session, with plugins, hooks and readers
floor_abort   an abort window by hand
rows_abort    1,000 interrupts at once; one among 200 busy sessions
floor_actors  actors and live sessions by hand
rows_ask      ask and tell, inside Trio and across
rows_memory   what a session costs to start and to hold, what a waiting turn holds
rows_events   durable events, for 1 to 1,000 producers
rows_timers   10,000 alarms, against a heap by hand
rows_scrape   a metrics scrape under load
rows          all of them, by name
table         the table for people
counts        what a turn does, counted: the same on every machine
soak_sample   what a program holds, and whether it holds more and more
soak_life     one session of the soak: what is done to it, and what must be true of it then
soak          many sessions used without pity for half an hour: `python -m tests.bench.soak`
endings       how long it takes to end many: `python -m tests.bench.endings`
"""
