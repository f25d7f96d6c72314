// The page: what is shown, the keys, and what is said when the program or a member does not answer.

import { byId, forgetToken, plural } from "../../report/web/elements.js";
import { Board, SECTIONS } from "./board.js";
import { Details } from "./details.js";
import { Live, clock, list, say } from "./live.js";

const WORDS = { connecting: "connecting", live: "live", paused: "paused", lost: "no connection", silent: "no member answers" };

class App {
  constructor() {
    /** @type {any} */
    this.picture = null;
    this.isPaused = false;
    this.state = "connecting";
    this.board = new Board((what) => this.go(what));
    this.details = new Details((what) => this.go(what));
    /** @type {Element | null} */
    this.opener = null;
    document.body.classList.add("loading");
    this.listen();
    this.live = new Live(
      (picture) => this.receive(picture),
      (state) => this.onState(state),
    );
    if (location.hash) this.follow();
  }

  listen() {
    byId("pause").onclick = () => this.pause();
    byId("help").onclick = () => this.toggleKeys();
    byId("search").addEventListener("submit", (/** @type {Event} */ event) => {
      event.preventDefault();
      if (byId("query").value.trim()) this.go(`message=${byId("query").value.trim()}`);
    });
    document.addEventListener("keydown", (event) => this.onKey(event));
    addEventListener("hashchange", () => this.follow());
    addEventListener("resize", () => this.draw());
  }

  /** @param {any} picture */
  receive(picture) {
    if (this.isPaused) return;
    this.picture = picture;
    document.body.classList.remove("loading");
    this.draw();
    this.details.refresh(picture).then(
      () => this.details.draw(this.picture),
      () => undefined,
    );
  }

  draw() {
    const { picture } = this;
    if (!picture) return;
    const { details } = this;
    document.title = `${picture.held ? `(${picture.held} held) ` : ""}${picture.group || "Live group"} - Antecede`;
    say(byId("title"), picture.group || "Live group");
    say(byId("about"), picture.answering ? `${picture.protocol}, ${plural(picture.members.length, "member")}, ${picture.answering} reporting` : "");
    this.drawNotice();
    this.board.draw(picture, { key: details.key, around: details.around, kindOf: (/** @type {string} */ id) => details.kindOf(id) });
    details.draw(picture);
    this.drawState();
  }

  drawNotice() {
    const { picture } = this;
    const notice = byId("notice");
    let text = "";
    if (this.state === "lost") text = `The program that serves this page does not answer. The page shows the state at ${picture ? clock(picture.time) : "the last update"} and continues by itself when the program is back.`;
    else if (picture && !picture.answering) text = picture.asked ? `No member answers: ${picture.silent.map((/** @type {any} */ each) => `${each.name} (${each.text})`).join("; ")}` : "There is no member to ask.";
    else if (picture && picture.silent.length) text = `${list(picture.silent.map((/** @type {any} */ each) => each.name))} ${picture.silent.length === 1 ? "does" : "do"} not answer: ${picture.silent[0].text}`;
    notice.hidden = !text;
    say(notice, text);
  }

  drawState() {
    const { picture } = this;
    const state = this.isPaused ? "paused" : this.state === "live" && picture && !picture.answering ? "silent" : this.state;
    byId("live").className = `pill ${state === "live" ? "live" : state === "lost" || state === "silent" ? "bad" : "open"}`;
    say(byId("live").firstElementChild, /** @type {any} */ (WORDS)[state] || state);
    document.body.classList.toggle("lost", this.state === "lost");
    document.body.classList.toggle("paused", this.isPaused);
    if (picture) say(byId("status"), this.isPaused ? `Paused at ${clock(picture.time)}; press p to continue.` : `Updated at ${clock(picture.time)}, every second.`);
  }

  /** @param {string} state */
  onState(state) {
    if (this.state === state) return;
    this.state = state;
    this.drawNotice();
    this.drawState();
  }

  pause() {
    this.isPaused = !this.isPaused;
    byId("pause").setAttribute("aria-pressed", String(this.isPaused));
    say(byId("pause"), this.isPaused ? "Continue" : "Pause");
    this.drawState();
  }

  toggleKeys() {
    byId("keys").hidden = !byId("keys").hidden;
    byId("help").setAttribute("aria-expanded", String(!byId("keys").hidden));
  }

  /** Open something, and remember it in the address. @param {string} what */
  go(what) {
    if (!byId("details").contains(document.activeElement)) this.opener = document.activeElement;
    const hash = what ? `#${what.split("=")[0]}=${encodeURIComponent(what.slice(what.indexOf("=") + 1))}` : "";
    if (location.hash === hash) return;
    if (hash) location.hash = hash;
    else {
      history.pushState(null, "", location.pathname);
      this.follow();
    }
  }

  /** Show what the address says. */
  async follow() {
    const [, kind, value] = /^#(\w+)=(.*)$/.exec(location.hash) || [];
    let key = "";
    try {
      key = kind ? `${kind}=${decodeURIComponent(value)}` : "";
    } catch {
      key = ""; // not an address of this page
    }
    const selecting = this.details.select(key);
    this.draw();
    if (key) byId("details").focus({ preventScroll: true });
    else if (this.opener && this.opener.isConnected) /** @type {any} */ (this.opener).focus();
    try {
      await selecting;
    } catch (error) {
      this.onState("lost");
    }
    this.draw();
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      if (!byId("keys").hidden) this.toggleKeys();
      else this.go("");
      return;
    }
    if (/** @type {Element} */ (event.target).closest("input")) return;
    const section = SECTIONS[Number(event.key) - 1];
    if (section) this.board.show(section);
    else if (event.key === "/") byId("query").focus();
    else if (event.key === "p") this.pause();
    else if (event.key === "?") this.toggleKeys();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (!this.step(event.key === "ArrowDown" ? 1 : -1)) return;
    } else return;
    event.preventDefault();
  }

  /** To the row below or above, if a row has the focus or a section was gone to. @param {number} by */
  step(by) {
    const focused = document.activeElement;
    const section = focused && focused.closest("#board section");
    if (!section) return false;
    const buttons = /** @type {any[]} */ ([...section.querySelectorAll("button")]);
    const at = buttons.indexOf(focused);
    const next = at < 0 ? (by > 0 ? buttons[0] : undefined) : buttons[at + by];
    if (next) next.focus();
    return Boolean(next);
  }
}

forgetToken();
/** For scripts: the page's parts. */
Object.defineProperty(window, "console_page", { value: new App() });
