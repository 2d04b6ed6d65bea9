"""What keeps actors running: supervisors, stores, models and doors; the only home of asyncio.

Read in this order:

doors  what people and programs meet the runtime through
"""
