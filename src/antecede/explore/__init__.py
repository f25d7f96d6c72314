"""A page for exploring a run: processes as lanes, deliveries as arrows, violations marked.

`columns` reads a run as numbers, `marks` judges it, `layout` sorts its events so that causes come first,
`index` writes the result as small files, and `page` adds the page (`web/`) that reads them.
"""
