"""Antecede keeps a group's messages in cause-and-effect order.

Live over real sockets, in simulation at any size, and after the fact on Spark, with every causal
protocol behind one interface. Importing this package is cheap and needs no Spark; what an extra
brings is imported when it is first used, with a hint if it is not installed.
"""

__version__ = "0.1.0"
