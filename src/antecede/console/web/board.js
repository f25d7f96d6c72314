// The board: tiles that lead to the sections, and the sections. Every name goes into the page as text, never as HTML.

import { byId, element, plural } from "../../report/web/elements.js";
import { clock, keyed, list, perSecond, row, say, size, span } from "./live.js";
import { drawChanges, drawMessages, drawRate } from "./picture.js";

const FEW = 6;
export const SECTIONS = ["held", "messages", "members", "stability", "changes", "problems"];

/** What a change is in words. @param {any} each */
export function describeChange(each) {
  const by = each.by && each.by !== each.about ? ` by ${each.by}` : "";
  const words = { suspected: "is suspected", trusted: "is heard again", removing: `is being removed${by}`, removed: "was removed", joined: each.by && each.by !== each.about ? `joined, admitted${by}` : "joined", returned: "returned", left: "left" };
  return /** @type {any} */ (words)[each.kind] || each.kind;
}

/** A member's state in words and as a colour. @param {any} member @param {number} now */
export function stateOf(member, now) {
  if (member.is_removed) return ["being removed", "bad"];
  if (member.suspected_by.length) return [`suspected by ${list(member.suspected_by, 3)} for ${span(now - member.suspected_since)}`, "open"];
  if (!member.answers) return ["not answering", "none"];
  if (member.state !== "open") return [member.state, "open"];
  if (member.links_down.length) return [`no link to ${list(member.links_down, 3)}`, "open"];
  return ["open", "good"];
}

/** What is missing, in one line. @param {any} each */
export function describeMissing(each) {
  const waiting = `${plural(each.count, "message")} ${each.count === 1 ? "waits" : "wait"} for it at ${list(each.at.map((/** @type {any} */ at) => at.member), 3)}`;
  if (each.arrived) return `${waiting}, where it has arrived but is not delivered yet`;
  if (each.has.length) return `${waiting}; ${list(each.has, 3)} ${each.has.length === 1 ? "has" : "have"} it`;
  if (each.may_have.length) return `${waiting}; ${list(each.may_have, 3)} may have it`;
  return `${waiting}; no member that answers has it`;
}

export class Board {
  /** @param {(what: string) => void} open */
  constructor(open) {
    this.open = open;
    this.showsAll = false;
    byId("held-more").onclick = () => {
      this.showsAll = !this.showsAll;
    };
    this.tiles = SECTIONS.map((section) => {
      const button = element("button", undefined, "none");
      button.append(element("span"), element("b"), element("small"));
      button.setAttribute("data-section", section);
      button.onclick = () => this.show(section);
      byId("tiles").append(button);
      return button;
    });
  }

  /** @param {string} section */
  show(section) {
    byId(section).scrollIntoView({ block: "start" });
    byId(section).focus({ preventScroll: true });
  }

  /** @param {any} picture @param {any} selected what the details show, of `kindOf` its messages */
  draw(picture, selected) {
    this.drawTiles(picture);
    this.drawMissing(picture, selected);
    this.drawMembers(picture, selected);
    this.drawStability(picture);
    this.drawTimeLine(picture, selected);
    this.drawProblems(picture);
    drawRate(byId("rate"), picture.history, picture.time);
    say(byId("messages-say"), selected.around ? "The selected message with its causal past and future. Esc returns to the latest messages." : picture.messages.length ? "The latest messages, a row for each sender; causes are to the left of their effects. Select a message to see its causal past and future." : "No messages since this page was opened.");
    const shown = selected.around ? selected.around.messages : picture.messages;
    drawMessages(byId("picture"), shown, selected.kindOf, (id) => this.open(`message=${id}`));
  }

  /** @param {any} picture */
  drawTiles(picture) {
    const suspected = picture.members.filter((/** @type {any} */ each) => each.suspected_by.length).length;
    const silent = picture.members.filter((/** @type {any} */ each) => !each.answers).length;
    const last = picture.changes[picture.changes.length - 1];
    const lag = picture.origins.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + Math.max(0, each.latest - each.stable), 0);
    const notes = [suspected ? `${suspected} suspected` : "", silent ? `${silent} not answering` : ""].filter(Boolean);
    const rate = picture.rate || [0, 0];
    const texts = [
      ["Held", picture.held.toLocaleString("en"), picture.held ? `for ${span(picture.held_seconds)}; ${picture.missing.length.toLocaleString("en")} missing` : "no message waits", picture.held ? "hold" : "good"],
      ["Messages/s", picture.rate ? perSecond(rate[0]) : "…", `delivered; ${perSecond(rate[1])} broadcast`, "calm"],
      ["Members", String(picture.members.length), notes.join(", ") || "all answering", suspected ? "hold" : "good"],
      picture.knows_stability ? ["Not yet stable", lag.toLocaleString("en"), size(picture.unstable_bytes), "none"] : ["Not yet stable", "–", "not reported", "none"],
      ["View changes", String(picture.changes.length), last ? `${span(picture.time - last.first)} ago: ${last.about} ${describeChange(last)}` : picture.changes_members ? "none so far" : "fixed membership", "none"],
      ["Problems", String(picture.problems.length), picture.problems.length ? picture.problems[0].kind : "none", picture.problems.length ? "bad" : "good"],
    ];
    texts.forEach(([name, value, note, kind], index) => {
      const tile = this.tiles[index];
      tile.className = kind;
      say(tile.children[0], name);
      say(tile.children[1], value);
      say(tile.children[2], note);
    });
  }

  /** @param {any} picture @param {any} selected */
  drawMissing(picture, selected) {
    const unlisted = picture.held && !picture.missing.length ? ` ${plural(picture.held, "message")} ${picture.held === 1 ? "is" : "are"} held, too many to list each.` : "";
    say(byId("held-say"), picture.missing.length ? "These messages have not arrived everywhere, and others wait for them. Select one to see who has it." : unlisted || "No message is held: all that have arrived could be delivered.");
    const shown = picture.missing.slice(0, this.showsAll ? undefined : FEW);
    byId("held-more").hidden = picture.missing.length <= FEW;
    say(byId("held-more"), this.showsAll ? "Show fewer" : `Show ${picture.missing.length - FEW} more`);
    keyed(byId("held-list"), shown, (each) => each.id, (each) => {
      const made = row("missing");
      made.firstElementChild.onclick = () => this.open(`missing=${each.id}`);
      return made;
    }, (made, each) => {
      const [name, text, time] = made.firstElementChild.children;
      say(name, each.id ? `${each.id} is ${each.arrived ? "not delivered" : "missing"}` : "a message without a name is missing");
      say(text, describeMissing(each));
      say(time, span(picture.time - each.since));
      made.firstElementChild.setAttribute("aria-current", String(selected.key === `missing=${each.id}`));
    });
  }

  /** @param {any} picture @param {any} selected */
  drawMembers(picture, selected) {
    keyed(byId("members-list"), picture.members, (each) => each.label, (each) => {
      const made = element("tr");
      const name = element("button", each.label, "name");
      name.onclick = () => this.open(`member=${each.label}`);
      const cell = element("td", undefined, "words");
      cell.append(name);
      const state = element("td", undefined, "words");
      state.append(element("span", "", "pill"));
      made.append(cell, state, element("td"), element("td"), element("td"), element("td"));
      return made;
    }, (made, each) => {
      const [name, state, links, rate, held, behind] = made.children;
      const [text, kind] = stateOf(each, picture.time);
      made.className = each.answers ? "" : "away";
      state.firstChild.className = `pill ${kind}`;
      say(state.firstChild, text);
      const rates = picture.rates[each.label];
      say(links, each.answers ? `${each.links - each.links_down.length}/${each.links}` : "–");
      say(rate, rates ? perSecond(rates[0]) : "–");
      say(held, each.answers ? each.held.toLocaleString("en") : "–");
      say(behind, picture.knows_stability ? each.behind.toLocaleString("en") : "–");
      name.firstChild.setAttribute("aria-current", String(selected.key === `member=${each.label}`));
    });
  }

  /** @param {any} picture */
  drawStability(picture) {
    const reports = "A message is stable once every member is known to have delivered it. Until then, members retain it for those that lack it. Members report periodically, so these figures lag slightly.";
    say(byId("stability-say"), picture.knows_stability ? reports : "Simulated members of a fixed group do not report what they have delivered, so nobody knows what is stable.");
    keyed(byId("stability-list"), picture.origins, (each) => each.origin, () => {
      const made = element("tr");
      made.append(element("td", undefined, "words"), element("td"), element("td"), element("td", undefined, "words"));
      return made;
    }, (made, each) => {
      say(made.children[0], each.origin);
      say(made.children[1], each.latest.toLocaleString("en"));
      const lag = each.latest > each.stable ? ` (−${(each.latest - each.stable).toLocaleString("en")})` : "";
      say(made.children[2], picture.knows_stability ? `${each.stable.toLocaleString("en")}${lag}` : "–");
      const least = Math.min(...each.slowest.map((/** @type {string} */ label) => each.delivered[label]));
      say(made.children[3], each.slowest.length ? `${list(each.slowest, 3)}: ${least.toLocaleString("en")}` : "all up to date");
    });
  }

  /** @param {any} picture @param {any} selected */
  drawTimeLine(picture, selected) {
    const { changes } = picture;
    say(byId("changes-say"), changes.length ? "Members do not agree on views: each changes its own when it delivers the message that announces the change." : picture.changes_members ? "Nobody has joined, left or been suspected since the members started." : "The membership is fixed. Suspicions appear here.");
    byId("timeline").hidden = byId("changes-legend").hidden = !changes.length;
    if (changes.length) drawChanges(byId("timeline"), changes, picture.members, picture.time, (index) => this.open(`change=${this.changeKey(changes[index])}`));
    keyed(byId("changes-list"), changes.slice(-12).reverse(), (each) => this.changeKey(each), (each) => {
      const made = row("change");
      made.firstElementChild.onclick = () => this.open(`change=${this.changeKey(each)}`);
      return made;
    }, (made, each) => {
      const [name, text, time] = made.firstElementChild.children;
      say(name, each.about);
      say(text, describeChange(each));
      say(time, clock(each.first));
      made.firstElementChild.setAttribute("aria-current", String(selected.key === `change=${this.changeKey(each)}`));
    });
  }

  /** @param {any} each */
  changeKey(each) {
    return `${each.first.toFixed(3)} ${each.kind} ${each.about}`;
  }

  /** @param {any} picture */
  drawProblems(picture) {
    say(byId("problems-say"), picture.problems.length ? "These conditions need attention. They disappear when they are resolved." : "No problems.");
    keyed(byId("problems-list"), picture.problems, (each) => `${each.at} ${each.kind} ${each.about}`, (each) => {
      const made = row("problem");
      made.firstElementChild.onclick = () => this.open(`member=${each.at}`);
      return made;
    }, (made, each) => {
      const [name, text, time] = made.firstElementChild.children;
      say(name, `${each.kind} at ${each.at}`);
      say(text, each.text);
      say(time, span(picture.time - each.time));
    });
  }
}
