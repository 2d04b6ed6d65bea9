"""Models by name, and those that need no network.

Read in this order:

scripted  the script behind scripted:demo
replay    a recorded session as a model and its tools
wire      what the wires to providers share: addresses, keys, and what is hidden of them
refusals  what a provider's refusal means
dialect   what a server takes of a request, learned from its refusals
strict    strict schemas, and arguments back from them
history   a history as a provider takes it
stream    server-sent events from bytes
fields    what stands in JSON that nobody vouches for
pools     connections to one server, in many small pools
sdk       the one module that knows the providers' SDKs
provider  what models of providers share
openai_dialect    how requests to OpenAI are written
openai_catalogue  the tools of a prompt, and calls back
openai_input      from a prompt to the body of a request
openai_responses  from the events of a Responses stream to a reply
openai_chat       from the chunks of a Chat Completions stream to a reply
openai    openai:NAME, models of OpenAI and of servers that speak like it
anthropic_dialect  how requests to Anthropic are written
anthropic_schema   the schema of an answer as Anthropic's formats say it
anthropic_input    from a prompt to the body of a Messages request
anthropic_reply    from the events of a Messages stream to a reply
anthropic  anthropic:NAME, models of Anthropic, and of servers that speak like it
names     from a name to a model
"""

from callboard.runtime.models.anthropic import AnthropicModel
from callboard.runtime.models.names import ModelNames
from callboard.runtime.models.openai import OpenAIModel

__all__ = ["AnthropicModel", "ModelNames", "OpenAIModel"]
