// Blocks that scroll can be reached with the keyboard.
addEventListener("load", () => {
  for (const block of document.querySelectorAll("pre > code, .md-typeset__scrollwrap, .md-typeset table:not([class])"))
    if (block.scrollWidth > block.clientWidth) block.tabIndex = 0;
});

// The buttons of each block of code are a landmark, which needs a name of its own.
const nameButtons = () => {
  for (const [place, buttons] of document.querySelectorAll(".md-code__nav").entries())
    if (buttons.ariaLabel !== `Code block ${place + 1}`) buttons.ariaLabel = `Code block ${place + 1}`;
};
addEventListener("load", nameButtons);
new MutationObserver(nameButtons).observe(document.documentElement, { childList: true, subtree: true });
