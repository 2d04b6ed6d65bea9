"""Models by name, and those that need no network.

Read in this order:

scripted  the script behind scripted:demo
replay    a recorded session as a model and its tools
wire      what the wires to providers share: addresses, keys, and what is hidden of them
refusals  what a provider's refusal means
openai_strict     strict schemas, and arguments back from them
openai_history    a history as a provider takes it
openai_dialect    what a server takes of a request
openai_stream     server-sent events from bytes
openai_catalogue  the tools of a prompt, and calls back
openai_input      from a prompt to the body of a request
openai_responses  from the events of a Responses stream to a reply
openai_chat       from the chunks of a Chat Completions stream to a reply
openai_client     the one module that knows OpenAI's SDK
openai    openai:NAME, models of OpenAI and of servers that speak like it
names     from a name to a model
"""

from callboard.runtime.models.names import ModelNames

__all__ = ["ModelNames"]
