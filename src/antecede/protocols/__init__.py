"""Every causal protocol behind one interface: state machines that are fed and asked, never calling out.

    effects = member.broadcast(payload, now)         # the application sends
    effects = member.receive(link, packet, now)      # a packet came in
    for send in effects.sends: ...                   # the driver carries these out first
    while (delivery := member.deliver(now)): ...     # then asks what the application gets

The simulator, the live node and the tests are three drivers of the same objects.
"""
