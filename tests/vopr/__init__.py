"""A deterministic simulation of whole live members, in the manner of TigerBeetle's VOPR.

Several members run in one process: the real core, journal, links, greeter and clock, over a simulated disk,
network and time. One seed gives one execution, replayed exactly. Faults are injected at random, applications
consume and broadcast at random, and a judge that knows every broadcast checks each delivery when it happens
and the whole group once it has come to rest.

    ./dev vopr --seconds 60        executions from seed 0 on, until the time is over
    ./dev vopr --seed 17           one execution, told step by step
"""
