"""A page on which a run is looked at: processes as lanes, deliveries as arrows, violations marked.

`columns` reads a run as numbers, `marks` has it judged, `layout` puts its events into an order in which
causes come first, `index` writes that as small files, and `page` adds the page (`web/`) that reads them.
"""
