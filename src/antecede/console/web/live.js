// The newest picture of the group, as the program sends it, and words for times and numbers.

import { element } from "../../report/web/elements.js";

/** @typedef {any} Picture */

const SILENCE = 6000;

/** Follows what the program sends; a page that nobody sees asks for nothing. */
export class Live {
  /** @param {(picture: Picture) => void} onPicture @param {(state: string) => void} onState */
  constructor(onPicture, onState) {
    this.onPicture = onPicture;
    this.onState = onState;
    /** @type {EventSource | null} */
    this.source = null;
    this.heardAt = 0;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.open()));
    setInterval(() => {
      if (this.source && this.heardAt && Date.now() - this.heardAt > SILENCE) this.onState("lost");
    }, 1000);
    this.open();
  }

  open() {
    if (this.source) return;
    const source = (this.source = new EventSource("events"));
    source.onmessage = (event) => {
      this.heardAt = Date.now();
      this.onState("live");
      this.onPicture(JSON.parse(event.data));
    };
    source.onerror = () => {
      this.onState("lost");
      if (source.readyState === EventSource.CLOSED) {
        this.close();
        setTimeout(() => document.hidden || this.open(), 3000);
      }
    };
  }

  close() {
    if (this.source) this.source.close();
    this.source = null;
  }
}

/** @param {string} what */
export async function ask(what) {
  const answer = await fetch(what);
  if (!answer.ok) throw new Error(`the program answers ${answer.status}`);
  return answer.json();
}

/** @param {number} seconds */
export function span(seconds) {
  const s = Math.max(0, seconds);
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 100) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 129600) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

/** @param {number} time */
export const clock = (time) => new Date(time * 1000).toLocaleTimeString("en-GB");

/** @param {number} bytes */
export function size(bytes) {
  for (const [unit, of] of [["MB", 1e6], ["kB", 1e3]]) if (bytes >= +of) return `${(bytes / +of).toFixed(1)} ${unit}`;
  return `${bytes} B`;
}

/** @param {number} rate */
export const perSecond = (rate) => (rate >= 10 ? Math.round(rate).toLocaleString("en") : rate.toFixed(1).replace(".0", ""));

/** Names as a sentence has them. @param {string[]} names @param {number} [most] */
export function list(names, most = 6) {
  const shown = names.length > most ? [...names.slice(0, most), `${names.length - most} more`] : names;
  return shown.length < 2 ? shown.join("") : `${shown.slice(0, -1).join(", ")} and ${shown[shown.length - 1]}`;
}

/**
 * Children of an element, one for each item, which stay the same elements as long as their items are there: what has
 * the focus keeps it. @param {Element} parent @param {any[]} items @param {(item: any) => string} keyOf
 * @param {(item: any) => Element} make @param {(made: any, item: any) => void} update
 */
export function keyed(parent, items, keyOf, make, update) {
  /** @type {Map<string, any>} */
  const before = new Map([...parent.children].map((each) => [/** @type {any} */ (each).key, each]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let made = before.get(key);
    if (made) before.delete(key);
    else {
      made = make(item);
      made.key = key;
    }
    if (made === place) place = place.nextElementSibling;
    else parent.insertBefore(made, place);
    update(made, item);
  }
  for (const gone of before.values()) gone.remove();
}

/**
 * Makes the children of an element what they are wanted to be and keeps those that are there: a click that begins on one
 * ends on the same, and the focus stays. @param {Element} parent @param {Node[]} wanted
 */
export function become(parent, wanted) {
  const before = /** @type {any[]} */ ([...parent.childNodes]);
  wanted.forEach((next, index) => {
    const old = before[index];
    if (!old) parent.append(next);
    else if (old.nodeName !== next.nodeName) old.replaceWith(next);
    else if (next instanceof Element) {
      for (const { name } of [...old.attributes]) if (!next.hasAttribute(name)) old.removeAttribute(name);
      for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
      become(old, [...next.childNodes]);
    } else if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
  });
  for (const gone of before.slice(wanted.length)) gone.remove();
}

/** Sets a text only if it changes, so that a selection in it stays. @param {Element} where @param {string} text */
export function say(where, text) {
  if (where.textContent !== text) where.textContent = text;
}

/** A row of a list that opens something. @param {string} kind */
export function row(kind) {
  const item = element("li");
  const button = element("button", undefined, kind);
  button.append(element("b"), element("span"), element("span", "", "time"));
  item.append(button);
  return item;
}
