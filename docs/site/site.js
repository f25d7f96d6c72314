// Blocks that scroll can be reached with the keyboard.
addEventListener("load", () => {
  for (const block of document.querySelectorAll("pre > code, .md-typeset__scrollwrap, .md-typeset table:not([class])"))
    if (block.scrollWidth > block.clientWidth) block.tabIndex = 0;
});
