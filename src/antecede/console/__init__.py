"""The console: a page on which a live group is watched. It asks members, and puts what they say together."""
