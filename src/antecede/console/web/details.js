// The details of what is selected: a missing message and who has it, a message and its past and future, a member, a change.

import { byId, element, plural } from "../../report/web/elements.js";
import { ask, become, clock, list, size, span } from "./live.js";
import { describeChange, stateOf } from "./board.js";

/** Seconds after which a message that others have, and have a link for, is late. */
const LONG = 8;

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
    into.append(element("p", "Select a missing message to see what waits for it, since when, and who has it; a message to see its causal past and future; a member to see its links; or a change of the view."));
    const about = element("ul");
    for (const [name, text] of [["hold", "held: it has arrived, and a cause of it has not"], ["past", "before the selected message"], ["future", "after it"]]) {
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
      into.append(element("p", "It is not missing any more: what waited for it has been delivered."));
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
    has("May have it, as others know", missing.may_have, "both");
    has("Has not got it", missing.lacks, "fault");
    for (const at of missing.at) {
      into.append(element("h3", `Waits at ${at.member}, since ${clock(at.since)}`));
      into.append(this.messages(at.messages.map((/** @type {any} */ each) => each.id), 12));
      const links = element("ul");
      for (const link of at.links) links.append(element("li", `link to ${link.to}: ${link.connected ? "there" : "none"}${link.suspected ? `, not heard for ${span(picture.time - link.suspected)}` : ""}`));
      into.append(links);
    }
  }

  /** Why messages are held, in words for somebody who sees this for the first time. @param {any} missing @param {any} picture */
  whyHeld(missing, picture) {
    const [at] = missing.at;
    const reached = at.links.filter((/** @type {any} */ link) => link.connected && !link.suspected).map((/** @type {any} */ link) => link.to);
    const first = at.messages[0] ? at.messages[0].id : "a message";
    const them = at.count === 1 ? first : `${at.count} messages, ${first} the first,`;
    if (at.arrived) return `${at.member} has received ${them} and may not deliver ${at.count === 1 ? "it" : "them"} before ${missing.id}. That has arrived there, and is not delivered yet: its application is busy with what is before it, or the member is still joining or returning.`;
    const what = `${at.member} has received ${them} and may not deliver ${at.count === 1 ? "it" : "them"} yet: ${at.count === 1 ? "it was" : "they were"} sent after ${missing.id || "another message"}, which has not arrived there.`;
    if (!missing.has.length && !missing.may_have.length) return `${what} Nobody who answers has it, so it must come from ${missing.origin || "its sender"}.`;
    if (!reached.length) return `${what} ${at.member} has a link to nobody who has it; it arrives when there is one again.`;
    const waited = picture.time - missing.since;
    const asks = `${list(reached, 3)} ${reached.length === 1 ? "has it and is" : "have it and are"} connected to ${at.member}, which asks for it.`;
    return `${what} ${asks} ${waited < LONG ? "It should arrive within seconds." : `It has taken ${span(waited)}, which is long: such a link may carry nothing, though neither end has noticed.`}`;
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
      const why = element("p", `It is held at ${list(where)}, since ${blocked.id} is missing there. `, "why");
      const button = element("button", `Who has ${blocked.id}?`);
      button.setAttribute("data-open", `missing=${blocked.id}`);
      why.append(button);
      into.append(why);
    }
    if (!around.known) into.append(element("p", "No member that answers has noted when it delivered this message: that was before this page was opened, or a thousand messages ago, or it is none of an application."));
    const counts = element("ul");
    for (const [name, text] of [["past", `${plural(around.past_count, "message")} before it${around.is_complete ? "" : ", and older ones that nobody has noted"}`], ["future", `${plural(around.future_count, "message")} after it`], ["both", `${plural(Math.max(0, around.concurrent_count), "message")} concurrent with it`]]) {
      const item = element("li");
      item.append(element("span", "", `key ${name}`), text);
      counts.append(item);
    }
    into.append(counts, element("h3", "Its immediate causes"));
    into.append(around.causes.length ? this.messages(around.causes) : element("p", around.known ? "None that an application has broadcast." : "Not known here."));
    if (around.past.length) into.append(element("h3", "Causal past, the nearest first"), this.messages(around.past));
    if (around.future.length) into.append(element("h3", "Causal future"), this.messages(around.future));
    if (around.delivered.length) {
      into.append(element("h3", "Delivered at"));
      const table = element("table");
      const first = around.delivered[0].time;
      for (const each of around.delivered) {
        const row = element("tr");
        row.append(element("td", each.member), element("td", clock(each.time)), element("td", each.time > first ? `+${span(each.time - first)}` : "first"));
        table.append(row);
      }
      into.append(table, element("p", "By each member's own clock.", "quiet"));
    }
  }

  /** @param {DocumentFragment} into @param {any} picture @param {string} label */
  drawMember(into, picture, label) {
    const member = picture.members.find((/** @type {any} */ each) => each.label === label);
    this.top(into, label);
    if (!member) {
      into.append(element("p", "It is not a member any more."));
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
    fact("behind", `${plural(member.behind, "message")} at most, as others know`);
    if (member.answers) {
      fact("broadcast, delivered", `${member.broadcast.toLocaleString("en")}, ${member.delivered.toLocaleString("en")}`);
      fact("for its application", plural(member.for_application, "message"));
      fact("held", plural(member.held, "message"));
      fact("not stable", `${size(member.unstable_bytes)} of ${size(member.limit)}`);
    } else into.append(element("p", "It does not answer here; this is what others say of it."));
    into.append(facts);
    const detail = this.member;
    if (!detail || !member.answers) return;
    for (const problem of detail.problems) into.append(element("p", `${problem.kind}: ${problem.text}`, "bad"));
    into.append(element("h3", "Links"));
    const links = element("table");
    for (const link of detail.links) {
      const row = element("tr");
      const cell = element("td");
      const state = link.suspected ? `not heard for ${span(picture.time - link.suspected)}` : link.connected ? "there" : "none";
      cell.append(element("span", state, `pill ${link.suspected ? "open" : link.connected ? "good" : "bad"}`));
      row.append(element("td", link.to), cell, element("td", link.behind ? `${link.behind} behind` : ""));
      links.append(row);
    }
    into.append(links);
    if (detail.notices.length) {
      into.append(element("h3", "What happened there"));
      const notices = element("ul");
      for (const each of detail.notices) notices.append(element("li", `${clock(each.time)} ${each.kind} ${each.about}${each.text ? `: ${each.text}` : ""}`));
      into.append(notices);
    }
  }

  /** @param {DocumentFragment} into @param {any} picture @param {string} value */
  drawChange(into, picture, value) {
    const change = picture.changes.find((/** @type {any} */ each) => value === `${each.first.toFixed(3)} ${each.kind} ${each.about}`);
    if (!change) {
      this.top(into, "This change");
      into.append(element("p", "It is too long ago to be listed."));
      return;
    }
    this.top(into, `${change.about} ${describeChange(change)}`);
    if (change.text) into.append(element("p", change.text));
    if (change.message) into.append(element("p", change.kind === "removed" ? "The last of its messages that anybody delivers:" : "The message that changed the view:"), this.messages([change.message]));
    into.append(element("p", `First seen at ${clock(change.first)}${change.last > change.first ? `, by all of these ${span(change.last - change.first)} later` : ""}:`));
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
