// The details of what is selected: a missing message and who has it, a message and its past and future, a member, a change.

import { byId, element, plural } from "../../report/web/elements.js";
import { ask, become, clock, list, size, span } from "./live.js";
import { describeChange, stateOf } from "./board.js";

/** Seconds after which a message that others have, and have a link for, is late. */
const LONG = 8;

/** @param {number} seconds */
const later = (seconds) => (seconds < 1 ? `${Math.round(1000 * seconds)} ms` : span(seconds));

export class Details {
  /** @param {(what: string) => void} open */
  constructor(open) {
    this.open = open;
    this.key = "";
    /** @type {any} */
    this.around = null;
    /** @type {any} */
    this.member = null;
    /** @type {Set<string>} messages that are held somewhere */
    this.held = new Set();
    this.asked = 0;
    this.begin();
  }

  /** What is selected: `missing=ana:3`, `message=ana:3`, `member=ana`, `change=…`, or nothing. @param {string} key */
  async select(key) {
    this.key = key;
    this.around = null;
    this.member = null;
    const asked = ++this.asked;
    const [kind, value] = this.parts();
    if (kind === "message" || kind === "missing") {
      const around = await ask(`message?id=${encodeURIComponent(value)}`);
      if (asked === this.asked) this.around = around;
    } else if (kind === "member") {
      const member = await ask(`member?label=${encodeURIComponent(value)}`);
      if (asked === this.asked) this.member = member;
    }
  }

  /** Ask again for what changes. @param {any} picture */
  async refresh(picture) {
    const [kind, value] = this.parts();
    const asked = this.asked;
    if (kind === "member") {
      const member = await ask(`member?label=${encodeURIComponent(value)}`);
      if (asked === this.asked) this.member = member;
    }
    return picture;
  }

  parts() {
    const at = this.key.indexOf("=");
    return at < 0 ? ["", ""] : [this.key.slice(0, at), this.key.slice(at + 1)];
  }

  /** How the drawing of messages shows one of them. @param {string} id */
  kindOf(id) {
    if (!this.around) return this.held.has(id) ? "held" : "";
    if (id === this.around.id) return "own";
    if (this.around.past.includes(id)) return "past";
    return this.around.future.includes(id) ? "future" : "other";
  }

  /** @param {any} picture */
  draw(picture) {
    const aside = byId("details");
    const [kind, value] = this.parts();
    this.held = new Set(picture.missing.flatMap((/** @type {any} */ each) => each.at.flatMap((/** @type {any} */ at) => at.messages.map((/** @type {any} */ held) => held.id))));
    const content = document.createDocumentFragment();
    if (kind === "missing") this.drawMissing(content, picture, value);
    else if (kind === "message") this.drawMessage(content, picture, value);
    else if (kind === "member") this.drawMember(content, picture, value);
    else if (kind === "change") this.drawChange(content, picture, value);
    else this.drawNothing(content);
    aside.classList.toggle("nothing", !kind);
    become(aside, [...content.childNodes]);
  }

  /** @param {DocumentFragment} into @param {string} title */
  top(into, title) {
    const top = element("div", undefined, "top");
    const close = element("button", "Close");
    close.title = "Close (Esc)";
    close.setAttribute("data-open", "");
    top.append(element("h2", title), close);
    into.append(top);
  }

  /** @param {DocumentFragment} into */
  drawNothing(into) {
    into.append(element("h2", "Nothing selected"));
    into.append(element("p", "Select a missing message to see who has it and what waits for it, a message to see its causal past and future, a member to see its links, or a view change."));
    const about = element("ul");
    for (const [name, text] of [["hold", "held: received, but a cause is missing"], ["past", "causal past of the selected message"], ["future", "causal future of it"]]) {
      const item = element("li");
      item.append(element("span", "", `key ${name}`), text);
      about.append(item);
    }
    into.append(about);
  }

  /** Buttons that lead to messages. @param {string[]} ids @param {number} [most] */
  messages(ids, most = 24) {
    const chips = element("ul", undefined, "chips");
    for (const id of ids.slice(0, most)) {
      const item = element("li");
      const button = element("button", id);
      button.setAttribute("data-open", `message=${id}`);
      item.append(button);
      chips.append(item);
    }
    if (ids.length > most) chips.append(element("li", `and ${ids.length - most} more`));
    return chips;
  }

  /** @param {DocumentFragment} into @param {any} picture @param {string} id */
  drawMissing(into, picture, id) {
    const missing = picture.missing.find((/** @type {any} */ each) => each.id === id);
    this.top(into, missing ? `${id} is ${missing.arrived ? "not delivered" : "missing"}` : id);
    if (!missing) {
      into.append(element("p", "It is no longer missing: the messages that waited for it are delivered."));
      if (id) into.append(this.messages([id]));
      return;
    }
    into.append(element("p", this.whyHeld(missing, picture), "why"));
    const has = (/** @type {string} */ title, /** @type {string[]} */ names, /** @type {string} */ key) => {
      if (!names.length) return;
      into.append(element("h3", title));
      const found = element("ul");
      for (const name of names) {
        const item = element("li");
        item.append(element("span", "", `key ${key}`), name);
        found.append(item);
      }
      into.append(found);
    };
    has("Has it", missing.has, "fine");
    has("May have it, according to others", missing.may_have, "both");
    has("Does not have it", missing.lacks, "fault");
    for (const at of missing.at) {
      into.append(element("h3", `Waiting at ${at.member} since ${clock(at.since)}`));
      into.append(this.messages(at.messages.map((/** @type {any} */ each) => each.id), 12));
      const links = element("ul");
      for (const link of at.links) links.append(element("li", `link to ${link.to}: ${link.connected ? "up" : "down"}${link.suspected ? `, not heard for ${span(picture.time - link.suspected)}` : ""}`));
      into.append(links);
    }
  }

  /** Why messages are held, in words for somebody who sees this for the first time. @param {any} missing @param {any} picture */
  whyHeld(missing, picture) {
    const [at] = missing.at;
    const reached = at.links.filter((/** @type {any} */ link) => link.connected && !link.suspected).map((/** @type {any} */ link) => link.to);
    const first = at.messages[0] ? at.messages[0].id : "a message";
    const them = at.count === 1 ? first : `${at.count} messages (first ${first})`;
    if (at.arrived) return `${at.member} has received ${them} but cannot deliver ${at.count === 1 ? "it" : "them"} before ${missing.id}. That one has arrived there and is not delivered yet: the application is busy with earlier messages, or the member is still joining or returning.`;
    const what = `${at.member} has received ${them} but cannot deliver ${at.count === 1 ? "it" : "them"} yet: ${at.count === 1 ? "it was" : "they were"} sent after ${missing.id || "another message"}, which has not arrived there.`;
    if (!missing.has.length && !missing.may_have.length) return `${what} No member that answers has it, so it must come from ${missing.origin || "its sender"}.`;
    if (!reached.length) return `${what} ${at.member} is connected to no member that has it. It will arrive when such a link is up again.`;
    const waited = picture.time - missing.since;
    const asks = `${list(reached, 3)} ${reached.length === 1 ? "has it and is" : "have it and are"} connected to ${at.member}, which is asking for it.`;
    return `${what} ${asks} ${waited < LONG ? "It should arrive within seconds." : `It has taken ${span(waited)}, which is long. The link may be carrying nothing without either end having noticed.`}`;
  }

  /** @param {DocumentFragment} into @param {any} picture @param {string} id */
  drawMessage(into, picture, id) {
    this.top(into, id);
    const { around } = this;
    if (!around) {
      into.append(element("p", "Asking the members …"));
      return;
    }
    const blocked = picture.missing.find((/** @type {any} */ each) => each.at.some((/** @type {any} */ at) => at.messages.some((/** @type {any} */ held) => held.id === id)));
    if (blocked) {
      const where = blocked.at.filter((/** @type {any} */ at) => at.messages.some((/** @type {any} */ held) => held.id === id)).map((/** @type {any} */ at) => at.member);
      const why = element("p", `Held at ${list(where)} because ${blocked.id} is missing there. `, "why");
      const button = element("button", `Who has ${blocked.id}?`);
      button.setAttribute("data-open", `missing=${blocked.id}`);
      why.append(button);
      into.append(why);
    }
    if (!around.known) into.append(element("p", "No member that answers has recorded this message: it was delivered before this page was opened, or more than a thousand messages ago, or it is not a message of the application."));
    const counts = element("ul");
    for (const [name, text] of [["past", `${plural(around.past_count, "message")} before it${around.is_complete ? "" : "; older ones were not recorded"}`], ["future", `${plural(around.future_count, "message")} after it`], ["both", `${plural(Math.max(0, around.concurrent_count), "message")} concurrent with it`]]) {
      const item = element("li");
      item.append(element("span", "", `key ${name}`), text);
      counts.append(item);
    }
    into.append(counts, element("h3", "Immediate causes"));
    into.append(around.causes.length ? this.messages(around.causes) : element("p", around.known ? "None." : "Not known."));
    if (around.past.length) into.append(element("h3", "Causal past, nearest first"), this.messages(around.past));
    if (around.future.length) into.append(element("h3", "Causal future"), this.messages(around.future));
    if (around.delivered.length) {
      into.append(element("h3", "Delivered at"));
      const table = element("table");
      const first = around.delivered[0].time;
      for (const each of around.delivered) {
        const row = element("tr");
        row.append(element("td", each.member), element("td", clock(each.time)), element("td", each.time > first ? `+${later(each.time - first)}` : "first"));
        table.append(row);
      }
      into.append(table, element("p", "Times are by each member's own clock.", "quiet"));
    }
  }

  /** @param {DocumentFragment} into @param {any} picture @param {string} label */
  drawMember(into, picture, label) {
    const member = picture.members.find((/** @type {any} */ each) => each.label === label);
    this.top(into, label);
    if (!member) {
      into.append(element("p", "No longer a member."));
      return;
    }
    const [text, kind] = stateOf(member, picture.time);
    into.append(element("p", text, `pill ${kind}`));
    const facts = element("table");
    const fact = (/** @type {string} */ name, /** @type {string} */ value) => {
      const row = element("tr");
      row.append(element("td", name), element("td", value));
      facts.append(row);
    };
    if (member.label !== member.name) fact("incarnation of", member.name);
    fact("member since", member.since ? clock(member.since) : "the start");
    if (member.at) fact("listens at", member.at);
    if (picture.knows_stability) fact("behind", `${plural(member.behind, "message")} at most, according to others`);
    if (member.answers) {
      fact("broadcast", plural(member.broadcast, "message"));
      fact("delivered", plural(member.delivered, "message"));
      fact("waiting for the application", plural(member.for_application, "message"));
      fact("held", plural(member.held, "message"));
      if (picture.knows_stability) fact("not yet stable", `${size(member.unstable_bytes)}${member.limit ? ` of ${size(member.limit)}` : ""}`);
    } else into.append(element("p", "This member does not answer. The figures are what others report about it."));
    into.append(facts);
    const detail = this.member;
    if (!detail || !member.answers) return;
    for (const problem of detail.problems) into.append(element("p", `${problem.kind}: ${problem.text}`, "bad"));
    into.append(element("h3", "Links"));
    const links = element("table");
    for (const link of detail.links) {
      const row = element("tr");
      const cell = element("td");
      const state = link.suspected ? `not heard for ${span(picture.time - link.suspected)}` : link.connected ? "up" : "down";
      cell.append(element("span", state, `pill ${link.suspected ? "open" : link.connected ? "good" : "bad"}`));
      row.append(element("td", link.to), cell, element("td", link.behind ? `${link.behind} behind` : ""));
      links.append(row);
    }
    into.append(links);
    if (detail.notices.length) {
      into.append(element("h3", "Recent events"));
      const notices = element("ul");
      for (const each of detail.notices) notices.append(element("li", `${clock(each.time)} ${each.about} ${each.kind}${each.text ? `: ${each.text}` : ""}`));
      into.append(notices);
    }
  }

  /** @param {DocumentFragment} into @param {any} picture @param {string} value */
  drawChange(into, picture, value) {
    const change = picture.changes.find((/** @type {any} */ each) => value === `${each.first.toFixed(3)} ${each.kind} ${each.about}`);
    if (!change) {
      this.top(into, "This change");
      into.append(element("p", "It is too old to be listed."));
      return;
    }
    this.top(into, `${change.about} ${describeChange(change)}`);
    if (change.text) into.append(element("p", change.text));
    if (change.message) into.append(element("p", change.kind === "removed" ? "The last of its messages that is delivered:" : "The message that changed the view:"), this.messages([change.message]));
    into.append(element("p", `First seen at ${clock(change.first)}${change.last > change.first ? `, by all of these within ${span(change.last - change.first)}` : ""}:`));
    const seen = element("ul");
    for (const label of change.seen_by) seen.append(element("li", label));
    into.append(seen);
  }

  /** A button in the details opens something else; one listener is for all of them. */
  begin() {
    byId("details").addEventListener("click", (/** @type {Event} */ event) => {
      const button = /** @type {Element} */ (event.target).closest("[data-open]");
      if (button) this.open(button.getAttribute("data-open") || "");
    });
  }
}
