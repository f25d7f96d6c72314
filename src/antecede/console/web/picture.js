// Drawings: messages by origin with their immediate dependencies, messages a second, and changes on a time line.

import { drawn, element } from "../../report/web/elements.js";
import { become, clock, list, perSecond, span } from "./live.js";

const LANE = 24;
const STEP = 21;
const CHARACTER = 7.2;

/** @param {string} name */
const short = (name) => (name.length > 14 ? `${name.slice(0, 13)}…` : name);

/** Names in the order of their numbers. @param {string} one @param {string} other */
const inOrder = (one, other) => one.localeCompare(other, "en", { numeric: true });

/** Puts drawings into an element; a message that has the focus keeps it. @param {Element} where @param {Element[]} drawings */
function replace(where, ...drawings) {
  const focused = document.activeElement;
  const key = focused && where.contains(focused) ? focused.getAttribute("data-key") : null;
  become(where, drawings);
  if (key === null || (focused && focused.getAttribute("data-key") === key)) return;
  const again = [...where.querySelectorAll("[data-key]")].find((each) => each.getAttribute("data-key") === key);
  if (again) /** @type {any} */ (again).focus({ preventScroll: true });
}

/**
 * Messages from left to right with causes before effects, in a lane for each origin. @param {Element} where
 * @param {any[]} messages @param {(id: string) => string} kindOf @param {(id: string) => void} onSelect
 */
export function drawMessages(where, messages, kindOf, onSelect) {
  const lanes = [...new Set(messages.map((each) => each.origin))].sort(inOrder);
  const gutter = 20 + CHARACTER * Math.max(3, ...lanes.map((each) => short(each).length));
  const width = STEP * messages.length + 16;
  const height = LANE * lanes.length + 6;
  const names = drawn("svg", { viewBox: `0 0 ${gutter} ${height}`, width: gutter, height, class: "names", "aria-hidden": "true" });
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": "Messages by origin, causes to the left of effects" });
  lanes.forEach((name, lane) => {
    const y = LANE * lane + LANE / 2 + 2;
    svg.append(drawn("line", { x1: 0, x2: width, y1: y, y2: y, class: "line" }));
    const text = drawn("text", { x: 2, y: y + 4, class: "lane" }, short(name));
    text.append(drawn("title", {}, name));
    names.append(text);
  });
  /** @type {Map<string, {x: number, y: number}>} */
  const places = new Map();
  messages.forEach((each, index) => places.set(each.id, { x: STEP * index + STEP / 2, y: LANE * lanes.indexOf(each.origin) + LANE / 2 + 2 }));
  for (const each of messages) {
    const to = places.get(each.id);
    for (const cause of each.causes) {
      const from = places.get(cause);
      if (!from || !to) continue;
      const kinds = [kindOf(cause), kindOf(each.id)];
      const kind = kinds.includes("past") && !kinds.includes("other") ? "past" : kinds.includes("future") && !kinds.includes("other") ? "future" : "";
      const bend = from.y === to.y ? (to.x - from.x > STEP * 1.5 ? 9 : 0) : 0;
      const middle = (from.x + to.x) / 2;
      const d = `M${from.x},${from.y} C${middle},${from.y - bend} ${middle},${to.y - bend} ${to.x},${to.y}`;
      svg.append(drawn("path", { d, class: `edge ${kind}` }));
    }
  }
  for (const each of messages) {
    const { x, y } = /** @type {{x: number, y: number}} */ (places.get(each.id));
    const kind = kindOf(each.id);
    const words = { own: ", selected", past: ", before it", future: ", after it", held: ", held" }[kind] || "";
    const dot = drawn("g", { class: `dot ${kind}`, tabindex: 0, role: "button", "data-key": each.id, "aria-label": `message ${each.id}${words}` });
    dot.append(drawn("circle", { cx: x, cy: y, r: kind === "own" ? 8 : 6.5 }), drawn("title", {}, `${each.id} after ${list(each.causes) || "nothing that is noted"}`));
    svg.append(dot);
  }
  const moving = element("div", undefined, "moving");
  moving.append(svg);
  const before = where.querySelector(".moving");
  const left = before ? before.scrollLeft : 0;
  const isAtEnd = !before || before.scrollWidth - before.clientWidth - left < 30;
  const seen = where.getAttribute("data-own");
  replace(where, names, moving);
  const now = /** @type {Element} */ (where.querySelector(".moving"));
  now.scrollLeft = isAtEnd ? now.scrollWidth : left;
  const own = (now.querySelector(".dot.own") || where).getAttribute("data-key") || "";
  const at = places.get(own);
  if (at && own !== seen) now.scrollLeft = at.x - now.clientWidth * 0.6;
  where.setAttribute("data-own", own);
  listen(where, onSelect);
}

/** @param {any} where @param {(id: string) => void} onSelect */
function listen(where, onSelect) {
  const dotOf = (/** @type {Event} */ event) => /** @type {Element} */ (event.target).closest(".dot");
  const select = (/** @type {Element} */ dot) => onSelect(dot.getAttribute("data-key") || "");
  where.onclick = (/** @type {Event} */ event) => {
    const dot = dotOf(event);
    if (dot) select(dot);
  };
  where.onkeydown = (/** @type {KeyboardEvent} */ event) => {
    const dot = dotOf(event);
    if (!dot) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      select(dot);
    }
    const other = event.key === "ArrowRight" ? dot.nextElementSibling : event.key === "ArrowLeft" ? dot.previousElementSibling : null;
    if (other && other.classList.contains("dot")) /** @type {any} */ (other).focus();
  };
}

/** Messages a second over the last minutes. @param {Element} where @param {number[][]} history @param {number} now */
export function drawRate(where, history, now) {
  const width = Math.max(240, where.clientWidth || 600);
  const height = 74;
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Messages a second over the last two minutes" });
  const most = Math.max(1, ...history.map((each) => each[1]));
  const left = 44;
  const x = (/** @type {number} */ time) => left + (width - left - 8) * Math.max(0, 1 - (now - time) / 120);
  const y = (/** @type {number} */ rate) => 58 - 50 * (rate / most);
  svg.append(drawn("line", { x1: left, x2: width - 8, y1: 58, y2: 58, class: "line" }), drawn("line", { x1: left, x2: width - 8, y1: 8, y2: 8, class: "line" }));
  svg.append(drawn("text", { x: left - 6, y: 12, "text-anchor": "end", class: "tick" }, perSecond(most)), drawn("text", { x: left - 6, y: 62, "text-anchor": "end", class: "tick" }, "0"));
  svg.append(drawn("text", { x: left, y: 72, class: "tick" }, "2 min ago"), drawn("text", { x: width - 8, y: 72, "text-anchor": "end", class: "tick" }, "now"));
  const shown = history.filter((each) => now - each[0] <= 120);
  if (shown.length > 1) {
    const line = (/** @type {number} */ column) => shown.map((each, index) => `${index && each[0] - shown[index - 1][0] < 5 ? "L" : "M"}${x(each[0]).toFixed(1)},${y(each[column]).toFixed(1)}`).join("");
    svg.append(drawn("path", { d: line(1), class: "delivered" }), drawn("path", { d: line(2), class: "broadcast" }));
  }
  become(where, [svg]);
}

/**
 * A lane for each member, with when it was one, when it was suspected, and what changed. @param {Element} where
 * @param {any[]} changes @param {any[]} members @param {number} now @param {(index: number) => void} onSelect
 */
export function drawChanges(where, changes, members, now, onSelect) {
  const shown = changes.slice(-60);
  const labels = [...new Set([...members.map((each) => each.label), ...shown.map((each) => each.about)])].sort(inOrder).slice(0, 40);
  const first = shown[0] ? shown[0].first : now - 60;
  const start = first - Math.max(4, (now - first) * 0.04);
  const gutter = 20 + CHARACTER * Math.max(3, ...labels.map((each) => short(each).length));
  const width = Math.max(320, where.clientWidth || 700);
  const lane = 19;
  const height = lane * labels.length + 22;
  const x = (/** @type {number} */ time) => gutter + ((width - gutter - 12) * Math.max(0, time - start)) / (now - start);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": "View changes by member on a time line" });
  const now_members = new Set(members.map((each) => each.label));
  labels.forEach((label, index) => {
    const y = lane * index + 11;
    const text = drawn("text", { x: 2, y: y + 4, class: "lane" }, short(label));
    text.append(drawn("title", {}, label));
    svg.append(drawn("line", { x1: gutter, x2: width - 12, y1: y, y2: y, class: "line" }), text);
    const mine = shown.filter((each) => each.about === label);
    const came = mine.find((each) => each.kind === "joined" || each.kind === "returned");
    const went = mine.find((each) => each.kind === "left" || each.kind === "removed");
    const to = went ? went.first : now_members.has(label) ? now : 0;
    if (to) svg.append(drawn("line", { x1: x(came ? came.first : start), x2: x(to), y1: y, y2: y, class: "span" }));
    let since = 0;
    for (const each of mine) {
      if (each.kind === "suspected") since = since || each.first;
      if (since && (each.kind === "trusted" || each.kind === "removed" || each.kind === "left")) {
        svg.append(drawn("line", { x1: x(since), x2: x(each.first), y1: y, y2: y, class: "span away" }));
        since = 0;
      }
    }
    if (since && to) svg.append(drawn("line", { x1: x(since), x2: x(to), y1: y, y2: y, class: "span away" }));
  });
  shown.forEach((each) => {
    const lane_of = labels.indexOf(each.about);
    if (lane_of < 0) return;
    const mark = drawn("g", { class: `mark ${each.kind}`, "data-change": changes.indexOf(each) });
    mark.append(drawn("circle", { cx: x(each.first), cy: lane * lane_of + 11, r: 5 }), drawn("title", {}, `${each.about} ${each.kind} at ${clock(each.first)}`));
    svg.append(mark);
  });
  svg.append(drawn("text", { x: gutter, y: height - 3, class: "tick" }, `${span(now - start)} ago`), drawn("text", { x: width - 12, y: height - 3, "text-anchor": "end", class: "tick" }, "now"));
  become(where, [svg]);
  /** @type {any} */ (where).onclick = (/** @type {Event} */ event) => {
    const mark = /** @type {Element} */ (event.target).closest("[data-change]");
    if (mark) onSelect(Number(mark.getAttribute("data-change")));
  };
}
