// The explorer in a notebook's cell, by anywidget's interface: its page in a frame of its own, so that neither the
// notebook's keys and styles reach it nor the names in a run reach the notebook. The run goes into the frame as
// bytes; what is selected is the same on both sides.

/** @param {{model: any, el: HTMLElement}} cell */
function render({ model, el }) {
  const frame = document.createElement("iframe");
  frame.title = "Space-time diagram";
  frame.setAttribute("sandbox", "allow-scripts");
  frame.style.cssText = "display: block; width: 100%; box-sizing: border-box; border: 1px solid #8888; border-radius: 8px";

  /** What this frame has said: that need not be told to it. */
  let said = "";
  /** @param {object} message @param {Transferable[]} [moved] */
  const tell = (message, moved = []) => frame.contentWindow?.postMessage(message, "*", moved);
  const showScheme = () => tell({ scheme: schemeOf(el) });
  const showSelected = () => {
    if (model.get("selected") !== said) tell({ select: (said = model.get("selected")) });
  };
  const showHeight = () => (frame.style.height = `${model.get("height")}px`);
  const showRun = () => {
    const { buffer, byteOffset, byteLength } = model.get("_run");
    const run = buffer.slice(byteOffset, byteOffset + byteLength);
    said = model.get("selected");
    tell({ scheme: schemeOf(el), run, select: said }, [run]);
  };
  /** @param {MessageEvent} event */
  const listen = ({ source, data }) => {
    if (source !== frame.contentWindow) return;
    if (data.ready) showRun(); // each time that the frame was loaded: notebooks move cells
    else if (data.selected !== undefined) {
      said = data.selected;
      model.set("selected", said);
      model.save_changes();
    }
  };
  const themes = new MutationObserver(showScheme);
  themes.observe(document.body, { attributes: true });
  addEventListener("message", listen);
  model.on("change:selected", showSelected);
  model.on("change:height", showHeight);
  showHeight();
  frame.srcdoc = PAGE;
  el.append(frame);
  return () => {
    themes.disconnect();
    removeEventListener("message", listen);
    model.off("change:selected", showSelected);
    model.off("change:height", showHeight);
  };
}

/** Whether the notebook is dark, which need not be what the system is: its text says so. @param {Element} element */
function schemeOf(element) {
  const [red, green, blue] = getComputedStyle(element).color.match(/[0-9.]+/g).map(Number);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "dark" : "light";
}

export default { render };
