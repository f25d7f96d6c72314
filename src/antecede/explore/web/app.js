// The page: search, keys, the mouse, the selected message, and violations one key away. Every name goes into the page
// as text, never as HTML.

import { byId, element, forgetToken, plural } from "../../report/web/elements.js";
import { causalFuture, causalPast, timesOf } from "./causal.js";
import { Data, Embedded, Folder, NONE } from "./data.js";
import { ORDER_ONLY, View, hasTimes, parseTime, showTime } from "./view.js";

const MAX_LISTED = 200;
const IN_SIGHT = 1500;

/** What single events look like. */
function legend() {
  const list = element("ul", undefined, "legend");
  for (const [kind, text] of [["send", "send"], ["delivery", "delivery"], ["held", "held before delivery"], ["never", "received, never delivered"], ["fault", "violation"]]) {
    const item = element("li");
    item.append(element("span", "", `key ${kind}`), text);
    list.append(item);
  }
  return list;
}

class App {
  /** @param {Data} data */
  constructor(data) {
    this.data = data;
    this.view = new View(byId("canvas"), data);
    this.timed = hasTimes(data);
    this.asked = false;
    this.selecting = 0;
    this.lastMark = -1;
    this.notice = "";
    /** Called with each selection. @type {(selection: import("./view.js").Selection | null) => void} */
    this.tell = () => {};
    this.describe();
    this.listen();
    this.showMarks();
    this.redraw();
  }

  describe() {
    const { index } = this.data;
    document.title = `${index.title} - Antecede`;
    byId("title").textContent = index.title;
    byId("about").textContent =
      `${plural(index.messages, "message")}, ${plural(index.deliveries, "delivery", "deliveries")} at ` +
      `${plural(this.data.lanes, "process", "processes")}${this.timed ? ` in ${showTime(index.duration)}` : `; ${ORDER_ONLY}`}. ` +
      (index.note || (index.faults ? `${plural(index.faults, "violation")}.` : "No violations."));
    if (!this.timed) {
      byId("query").placeholder = "Find: p3 or p3:17";
      byId("query").setAttribute("aria-label", "Search for a process or a message");
    }
    byId("next").disabled = byId("previous").disabled = index.marks.length === 0;
  }

  redraw() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      const wanted = this.view.draw();
      this.status();
      if (wanted.length) {
        Promise.race(wanted.map((each) => each.catch((/** @type {Error} */ error) => this.fail(error)))).then((read) => {
          if (read !== null) this.redraw();
        });
      }
    });
  }

  /** @param {Error} error */
  fail(error) {
    this.notice = error.message;
    this.status();
    return null;
  }

  /** What is in sight, or what went wrong until something else is done. */
  status() {
    if (this.notice) {
      byId("status").textContent = this.notice;
      return;
    }
    const { shown, t0, t1 } = this.view;
    const [start, end] = [Math.max(0, t0), t1].map((each) => showTime(each, (t1 - t0) / 100));
    const arrows = shown.sampled > 1 ? `; arrows of one message in ${shown.sampled}` : "";
    const what = shown.detail ? `${plural(shown.events, "event")}${arrows}` : "density of events; zoom in to see each one";
    byId("status").textContent = !this.timed ? what : `${start} to ${end} (${showTime(Math.max(1, t1 - Math.max(0, t0)))}): ${what}`;
  }

  listen() {
    const canvas = byId("canvas");
    new ResizeObserver(() => {
      this.view.resize();
      this.redraw();
    }).observe(byId("picture"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.restyle());
    byId("search").addEventListener("submit", (/** @type {Event} */ event) => {
      event.preventDefault();
      this.search(byId("query").value).catch((error) => this.fail(error));
    });
    byId("in").onclick = () => this.move(() => this.view.zoom(0.6));
    byId("out").onclick = () => this.move(() => this.view.zoom(1 / 0.6));
    byId("fit").onclick = () => this.move(() => this.view.fit());
    byId("next").onclick = () => this.showMark(this.lastMark + 1);
    byId("previous").onclick = () => this.showMark(this.lastMark - 1);
    byId("help").onclick = () => this.toggleKeys();
    document.addEventListener("keydown", (event) => this.onKey(event));
    addEventListener("hashchange", () => this.follow(location.hash));
    canvas.addEventListener("wheel", (/** @type {WheelEvent} */ event) => this.onWheel(event), { passive: false });
    this.listenToPointers(canvas);
  }

  restyle() {
    this.view.readColours();
    this.redraw();
  }

  /** @param {() => void} change */
  move(change) {
    this.notice = "";
    change();
    this.redraw();
  }

  toggleKeys() {
    byId("keys").hidden = !byId("keys").hidden;
    byId("help").setAttribute("aria-expanded", String(!byId("keys").hidden));
  }

  /** @param {WheelEvent} event */
  onWheel(event) {
    event.preventDefault();
    const amount = event.deltaY || event.deltaX;
    this.move(() => {
      if (event.altKey) this.view.zoomLanes(Math.exp(-amount / 300), event.offsetY);
      else if (event.shiftKey || (!event.deltaY && event.deltaX)) this.view.pan(amount / 800);
      else this.view.zoom(Math.exp(amount / 300), (event.offsetX - this.view.gutter) / this.view.plotWidth);
    });
  }

  /** @param {HTMLCanvasElement} canvas */
  listenToPointers(canvas) {
    /** @type {Map<number, {x: number, y: number}>} */
    const pointers = new Map();
    let moved = 0;
    const apart = () => {
      const [one, other] = [...pointers.values()];
      return Math.max(20, Math.hypot(one.x - other.x, one.y - other.y));
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
      if (pointers.size === 1) moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) return;
      const was = pointers.size === 2 ? apart() : 0;
      const dx = event.offsetX - before.x;
      const dy = event.offsetY - before.y;
      moved += Math.abs(dx) + Math.abs(dy);
      pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
      this.move(() => {
        if (pointers.size === 2) {
          const middle = [...pointers.values()].reduce((sum, each) => sum + each.x / 2, 0);
          this.view.zoom(was / apart(), (middle - this.view.gutter) / this.view.plotWidth);
        } else this.view.pan(-dx / this.view.plotWidth, -dy / this.view.laneHeight);
      });
    });
    const end = (/** @type {PointerEvent} */ event) => {
      const single = pointers.size === 1;
      pointers.delete(event.pointerId);
      if (event.type === "pointerup" && single && moved < 5) this.pick(event.offsetX, event.offsetY);
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      byId("keys").hidden = true;
      if (target.tagName === "INPUT") byId("canvas").focus();
      else this.clear();
      return;
    }
    if (target.tagName === "INPUT" || (target.tagName === "BUTTON" && event.key === "Enter")) return;
    const { view } = this;
    /** @type {Record<string, () => void>} */
    const keys = {
      ArrowLeft: () => view.pan(-0.15),
      ArrowRight: () => view.pan(0.15),
      ArrowUp: () => view.pan(0, -2),
      ArrowDown: () => view.pan(0, 2),
      "+": () => (event.shiftKey && event.code !== "Equal" ? view.zoomLanes(1.25) : view.zoom(0.6)),
      "=": () => view.zoom(0.6),
      "-": () => view.zoom(1 / 0.6),
      "*": () => view.zoomLanes(1.25),
      _: () => view.zoomLanes(0.8),
      0: () => view.fit(),
      Home: () => view.fit(),
      n: () => this.showMark(this.lastMark + 1),
      b: () => this.showMark(this.lastMark - 1),
      "/": () => byId("query").focus(),
      "?": () => this.toggleKeys(),
      Enter: () => this.pick(view.gutter + view.plotWidth / 2, view.height / 2),
      ".": () => this.step(1),
      ",": () => this.step(-1),
      d: () => this.toDelivery(),
      s: () => view.selection && view.centre(view.selection.event.time, view.selection.event.lane),
    };
    const action = keys[event.key];
    if (!action) return;
    event.preventDefault();
    this.move(action);
  }

  /** Select the message of the event nearest to a point, on its lane if none is near. @param {number} x @param {number} y */
  async pick(x, y) {
    const near = this.view.shown.detail ? this.view.nearest(x, y) : null;
    const event = near || (await this.nearestOnLane(this.view.timeAt(x), this.view.laneAt(y)));
    if (!event) return;
    this.leaveMark();
    await this.select(event.message, event);
  }

  leaveMark() {
    this.view.mark = -1;
    this.view.path = [];
  }

  /** @param {number} time @param {number} lane @returns {Promise<import("./data.js").Event | null>} */
  async nearestOnLane(time, lane) {
    const { spans } = this.data.index;
    const numbers = [];
    for (let number = 0; number < this.data.chunks; number++) {
      if (spans[2 * number] <= time && spans[2 * number + 1] >= time) numbers.push(number);
    }
    if (!numbers.length) numbers.push(time <= 0 ? 0 : this.data.chunks - 1);
    const middle = numbers[Math.floor(numbers.length / 2)];
    let best = -1;
    let least = Infinity;
    for (const number of [middle, middle - 1, middle + 1]) {
      if (number < 0 || number >= this.data.chunks || least < Infinity) continue;
      const chunk = await this.data.chunk(number);
      for (let at = 0; at < chunk.count; at++) {
        if (chunk.laneKind[at] >>> 4 !== lane || chunk.message[at] === NONE) continue;
        if (Math.abs(chunk.time[at] - time) < least) {
          least = Math.abs(chunk.time[at] - time);
          best = chunk.first + at;
        }
      }
    }
    return best < 0 ? null : this.data.event(best);
  }

  /** Show a message with its causal past and future. @param {number} number @param {import("./data.js").Event} [at] */
  async select(number, at) {
    const turn = ++this.selecting;
    const message = await this.data.message(number);
    const events = await this.data.deliveries(message.start, message.end, MAX_LISTED);
    const event = message.send === NONE ? at || events[0] : await this.data.event(message.send);
    if (!event || turn !== this.selecting) return null;
    const [past, future] = await Promise.all([causalPast(this.data, event), causalFuture(this.data, event)]);
    const [pastTime, futureTime] = await Promise.all([
      timesOf(this.data, past, true),
      timesOf(this.data, future, false),
    ]);
    if (turn !== this.selecting) return null;
    this.view.selection = {
      message: number, name: message.name, event, past, future, pastTime, futureTime, deliveries: events,
    };
    this.at = at || event;
    this.showMessage(message, events);
    this.redraw();
    this.tell(this.view.selection);
    return this.view.selection;
  }

  clear() {
    this.selecting++;
    this.view.selection = null;
    this.tell(null);
    this.leaveMark();
    this.showMarks();
    this.redraw();
  }

  /** The next event of the lane of the selected one. @param {number} direction */
  async step(direction) {
    if (!this.at) return;
    const { chunk, events } = this.data.index;
    const { lane } = this.at;
    for (let number = this.at.number + direction; number >= 0 && number < events; number += direction) {
      const part = await this.data.chunk(Math.floor(number / chunk));
      for (; number >= part.first && number < part.first + part.count; number += direction) {
        const at = number - part.first;
        if (part.laneKind[at] >>> 4 === lane && part.message[at] !== NONE) {
          const event = await this.data.event(number);
          this.leaveMark();
          await this.select(event.message, event);
          this.bringIntoSight(event);
          return;
        }
      }
      number -= direction;
    }
  }

  /** @param {import("./data.js").Event} event */
  bringIntoSight(event) {
    const { view } = this;
    if (event.time < view.t0 || event.time > view.t1) view.centre(event.time, event.lane);
    this.redraw();
  }

  toDelivery() {
    const { selection } = this.view;
    if (!selection || !selection.deliveries.length) return;
    const before = selection.deliveries.findIndex((each) => this.at && each.number === this.at.number);
    this.at = selection.deliveries[(before + 1) % selection.deliveries.length];
    this.view.centre(this.at.time, this.at.lane);
  }

  /** @param {number} number */
  async showMark(number) {
    const { marks } = this.data.index;
    if (!marks.length) return;
    const place = ((number % marks.length) + marks.length) % marks.length;
    const mark = marks[place];
    this.view.mark = this.lastMark = place;
    this.view.path = [];
    if (mark.event >= 0) this.view.centre(mark.time, mark.lane, Math.min(this.view.t1 - this.view.t0, this.view.spanOf(IN_SIGHT)));
    this.redraw();
    if (mark.message >= 0) {
      const at = mark.event >= 0 ? await this.data.event(mark.event) : undefined;
      await this.select(mark.message, at);
      const path = await this.pathOf(mark, at);
      if (this.view.mark === place) this.view.path = path;
      this.redraw();
    } else this.showMarks();
  }

  /** The way of each message from the cause to the effect: its send, and its delivery where the next was sent.
   * @param {import("./data.js").Mark} mark @param {import("./data.js").Event} [end]
   * @returns {Promise<[import("./data.js").Event, import("./data.js").Event][]>} */
  async pathOf(mark, end) {
    /** @type {[import("./data.js").Event, import("./data.js").Event][]} */
    const path = [];
    for (let place = 0; place < mark.path.length; place++) {
      const message = await this.data.message(mark.path[place]);
      if (message.send === NONE) continue;
      const send = await this.data.event(message.send);
      if (place === mark.path.length - 1) {
        if (end) path.push([send, end]);
        continue;
      }
      const next = this.data.originOf(mark.path[place + 1]);
      const deliveries = await this.data.deliveries(message.start, message.end, MAX_LISTED * 10);
      path.push([send, deliveries.find((each) => each.lane === next) || send]);
    }
    return path;
  }

  /** Select a message and have it in sight. @param {number} message @param {string} name */
  async goTo(message, name) {
    this.leaveMark();
    const found = await this.select(message);
    if (found) this.view.centre(found.event.time, found.event.lane, Math.min(this.view.t1 - this.view.t0, this.view.spanOf(IN_SIGHT)));
    else this.fail(new Error(`${name} is in the run only as a name; nobody sent or delivered it.`));
    this.redraw();
    return found;
  }

  /** Select the message that a notebook names; none for "". @param {string} name */
  async show(name) {
    this.notice = "";
    const message = name ? await this.data.findMessage(name) : -1;
    if (message >= 0 && (await this.goTo(message, name))) return;
    this.clear();
    if (name && message < 0) this.fail(new Error(`The run has no message ${name}.`));
  }

  /** A process, a message, or a time. @param {string} text */
  async search(text) {
    const wanted = text.trim();
    if (!wanted) return;
    this.notice = "";
    const { origins } = this.data.index;
    const time = this.timed ? parseTime(wanted) : null;
    const message = await this.data.findMessage(wanted);
    if (message >= 0) {
      await this.goTo(message, wanted);
    } else if (time !== null) {
      this.view.centre(time, -1, Math.min(this.view.t1 - this.view.t0, this.view.spanOf(IN_SIGHT)));
    } else {
      const lanes = origins.slice(0, this.data.lanes);
      let lane = lanes.indexOf(wanted);
      if (lane < 0) lane = lanes.findIndex((name) => name.toLowerCase().includes(wanted.toLowerCase()));
      if (lane < 0) {
        this.fail(new Error(`Nothing here is called ${wanted}: try a process${this.timed ? ", ORIGIN:SEQ, or a time such as 2.5 s" : " or ORIGIN:SEQ"}.`));
        return;
      }
      if (this.view.laneHeight < 24) this.view.laneHeight = 24;
      this.view.top = lane - this.view.plotHeight / this.view.laneHeight / 2;
      this.view.clampLanes();
    }
    byId("canvas").focus();
    this.redraw();
  }

  /** Go where the address says: #message=…, #violation=1, #time=2s. @param {string} hash */
  async follow(hash) {
    const wanted = new URLSearchParams(hash.slice(1));
    const violation = Number(wanted.get("violation"));
    const message = wanted.get("message");
    const time = wanted.get("time");
    if (violation > 0) await this.showMark(violation - 1);
    else if (message || time) await this.search(message || time || "");
  }

  /** @param {any} message @param {import("./data.js").Event[]} deliveries */
  showMessage(message, deliveries) {
    const { index } = this.data;
    const { selection } = this.view;
    if (!selection) return;
    const aside = byId("details");
    aside.replaceChildren(element("h2", message.name));
    const sent = message.send !== NONE;
    const by = index.origins[message.origin];
    const when = this.timed ? ` at ${showTime(selection.event.time)}` : "";
    aside.append(element("p", sent ? `Sent by ${by}${when}.` : `The trace has no send of it. Its origin is ${by}.`));
    const past = selection.past.reduce((sum, each) => sum + each, 0);
    let future = 0;
    selection.future.forEach((each, lane) => {
      future += each === NONE ? 0 : index.lane_events[lane] - each;
    });
    const list = element("ul");
    /** @param {string} name @param {string} text */
    const item = (name, text) => {
      const made = element("li");
      made.append(element("span", "", `key ${name}`), text);
      list.append(made);
    };
    item("past", `${plural(past, "event")} in its causal past`);
    item("future", `${plural(Math.max(0, future - 1), "event")} in its future`);
    item("both", `${plural(index.events - past - future, "event")} concurrent with it`);
    item("own", plural(message.end - message.start, "delivery", "deliveries"));
    const held = deliveries.filter((each) => each.held > 0);
    const of = message.end - message.start > deliveries.length ? ` of the first ${deliveries.length}` : "";
    if (held.length) item("hold", `held before ${plural(held.length, "delivery", "deliveries")}${of}`);
    aside.append(list);
    if (this.view.mark >= 0) aside.append(element("p", index.marks[this.view.mark].text, "bad"));
    aside.append(this.deliveryTable(deliveries, message.end - message.start));
    if (index.marks.length) {
      const back = element("button", "All violations");
      back.onclick = () => this.clear();
      aside.append(back);
    }
  }

  /** @param {import("./data.js").Event[]} deliveries @param {number} count */
  deliveryTable(deliveries, count) {
    const table = element("table");
    const head = element("tr");
    for (const name of this.timed ? ["process", "after", "held"] : ["delivered at"]) head.append(element("th", name));
    table.append(head);
    for (const each of deliveries) {
      const row = element("tr");
      row.append(element("td", this.data.index.origins[each.lane]));
      if (this.timed) {
        row.append(element("td", Number.isNaN(each.since) ? "" : showTime(each.since)));
        row.append(element("td", each.held > 0 ? showTime(each.held) : ""));
      }
      table.append(row);
    }
    if (count > deliveries.length) {
      const row = element("tr");
      row.append(element("td", `and ${(count - deliveries.length).toLocaleString("en")} more`));
      table.append(row);
    }
    return table;
  }

  showMarks() {
    const { marks, faults } = this.data.index;
    const aside = byId("details");
    if (!marks.length) {
      aside.replaceChildren(element("h2", "Nothing selected"), element("p", "Zoom in and click an event to see the causal past and future of its message."), legend());
      return;
    }
    aside.replaceChildren(legend(), element("h2", plural(faults, "violation")));
    if (faults > marks.length) aside.append(element("p", `${marks.length.toLocaleString("en")} ${marks.length === 1 ? "is" : "are"} marked, worst first. Each says how many more follow from the same cause.`));
    const list = element("ol");
    marks.slice(0, MAX_LISTED).forEach((mark, place) => {
      const item = element("li");
      const button = element("button", mark.text);
      button.setAttribute("aria-current", String(place === this.view.mark));
      button.onclick = () => this.showMark(place);
      item.append(button);
      list.append(item);
    });
    aside.append(list);
  }
}

/** In a notebook: the run comes from whoever has made this frame, and what is selected is the same there. */
class Notebook {
  constructor() {
    /** @type {App | null} */
    this.app = null;
    this.wanted = "";
    /** @type {Promise<Embedded>} */
    this.source = new Promise((found) => {
      addEventListener("message", ({ source, data }) => {
        if (source !== parent) return;
        if (data.scheme) showScheme(data.scheme);
        if (data.scheme && this.app) this.app.restyle();
        if (data.run) found(Embedded.unpack(data.run));
        if (data.select !== undefined) this.select(data.select);
      });
    });
    parent.postMessage({ ready: true }, "*");
  }

  /** @param {App} app */
  attach(app) {
    this.app = app;
    app.tell = (selection) => {
      parent.postMessage({ selected: selection ? selection.name : "" }, "*");
    };
    if (this.wanted) this.select(this.wanted);
  }

  /** @param {string} name of a message; "" for none */
  select(name) {
    const { app } = this;
    this.wanted = name;
    if (!app) return;
    app.show(name).catch((error) => app.fail(error));
  }
}

/** Light or dark, whatever the system prefers. @param {string} scheme */
function showScheme(scheme) {
  for (const sheet of document.styleSheets) {
    for (const rule of sheet.cssRules) {
      if (!(rule instanceof CSSMediaRule) || !/prefers-color-scheme|^not all$|^all$/.test(rule.media.mediaText)) continue;
      rule.media.mediaText = scheme === "dark" ? "all" : "not all";
    }
  }
  document.documentElement.style.colorScheme = scheme;
}

forgetToken();
const embedded = document.getElementById("data");
const notebook = embedded && "notebook" in embedded.dataset ? new Notebook() : null;
const text = (embedded && embedded.textContent) || "";
const source = notebook ? notebook.source : embedded ? Embedded.fromText(text) : new Folder();
/** For scripts: the page's parts, once the first picture is there. */
Object.defineProperty(window, "explorer", {
  value: Promise.resolve(source).then(Data.open).then(
    async (data) => {
      const app = new App(data);
      await data.tile(0, 0);
      if (location.hash) await app.follow(location.hash);
      if (notebook) notebook.attach(app);
      return app;
    },
    (error) => {
      byId("status").textContent = `The run cannot be shown: ${error.message}`;
      throw error;
    },
  ),
});
