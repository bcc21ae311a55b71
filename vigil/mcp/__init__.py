"""`vigil mcp serve`: a stack as an MCP server, for agents and chats.

    client ──▶ server ──▶ one table of tools ──▶ vigil.client ──▶ log and rows
                 └──▶ tasks: an episode that was fired, until it ends

Who reads is offered tools that read. Tools that act are listed only for who has the scope `act`,
and a decision is always a person's, who signs in elsewhere: no tool approves anything.

What stands in findings, payloads and answers of models is data. It is never part of a description,
and the text of an answer has it between tags that nothing in it can close.
"""
